"""The command line as a person types it: what it lists, refuses, and where it writes."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from PIL import Image

from diagnostics.catalogue import GROUPS, config_folder, is_listing, listing, options, rewrite_overrides
from diagnostics.errors import ConfigError
from diagnostics.video.sampling import load_sampler

ROOT = Path(__file__).resolve().parents[2]


def diagnose(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "diagnostics", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_alone_it_lists_everything_and_makes_no_folder(tmp_path: Path) -> None:
    shown = diagnose(cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    for group in ("exp", "model", "data", "sampling"):
        for name, line in options(group).items():
            assert f"{name} " in shown.stdout
            assert line, f"{group}/{name}.yaml opens without a comment that says what it is"
            assert line in shown.stdout
    assert shown.stdout.count("python -m diagnostics +exp=") == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_showing_help_does_not_import_torch(tmp_path: Path, arguments: list[str]) -> None:
    program = (
        "import sys; sys.argv = ['diagnostics', *sys.argv[1:]]\n"
        "from diagnostics.__main__ import main; main()\n"
        "heavy = {'torch', 'transformers', 'hydra', 'matplotlib', 'av'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["+exp=attention_drfit"], "'attention_drift'"),
        (["+exp=attention_drift", "model=tinny"], "'tiny'"),
        (["+exp=attention_drift", "exp.key_fractoin=0.5"], "'key_fraction'"),
        (["+exp=attention_drift", "data.limti=2"], "'limit'"),
        (["+exp=attention_drift", "sampling.bugdet=2"], "'budget'"),
        (["+exp=attention_drift", "reading.wokers=2"], "'workers'"),
        (["+exp=attention_drift", "modle.dtype=float32"], "'model'"),
        (["+exp=attention_drift", "outt=here"], "'out'"),
    ],
)
def test_a_misspelt_name_is_refused_and_the_near_match_named(
    tmp_path: Path, arguments: list[str], named: str
) -> None:
    run = diagnose(*arguments, f"out={tmp_path}/run", cwd=tmp_path)
    assert run.returncode != 0
    assert f"Did you mean {named}?" in " ".join(run.stderr.split()), run.stderr
    assert "Traceback" not in run.stderr
    assert not (tmp_path / "run").exists()


def test_a_value_that_must_be_given_is_asked_for(tmp_path: Path) -> None:
    run = diagnose("+exp=attention_drift", "data=jsonl", cwd=tmp_path)
    assert run.returncode == 2
    assert "data.path must be given" in run.stderr


def test_a_wrong_type_is_named(tmp_path: Path) -> None:
    run = diagnose("+exp=attention_drift", "sampling.budget=many", cwd=tmp_path)
    assert run.returncode == 2
    assert "'sampling.budget' is 'many'" in " ".join(run.stderr.split())


def test_overrides_reach_hydra_in_its_own_form() -> None:
    rewritten = rewrite_overrides(
        ["exp=attention_drift", "model=tiny", "exp.key_fraction=0.5", "-m", "out=x"]
    )
    assert rewritten == [
        "+exp=attention_drift",
        "model=tiny",
        "++exp.key_fraction=0.5",
        "++out=x",
        "hydra.sweep.dir=${out}/.multirun",
        "-m",
    ]
    of_runs = rewrite_overrides(["+exp=report", "run=a", "beside=[b,c]"])
    assert of_runs == ["+exp=report", "++exp.run=a", "++exp.beside=[b,c]"]
    assert rewrite_overrides(["runs=[a,b]"]) == ["++exp.runs=[a,b]"]


@pytest.mark.parametrize("name", ["with space", "com,ma", "eq=ual", "par(en)", "it's"])
def test_any_path_may_be_given_as_it_is(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        given = ["+exp=build_evidence", f"out={path}", f"data.path={path}", f"exp.root={path}"]
        overrides = rewrite_overrides([*given, f"exp.folders.galar={path}"])
        composed = compose("config", overrides=overrides, return_hydra_config=True)
    assert composed.out == str(path)
    assert composed.data.path == composed.exp.root == composed.exp.folders.galar == str(path)
    assert composed.hydra.sweep.dir == f"{path}/.multirun"


@pytest.mark.parametrize("sampling", sorted(options("sampling")))
def test_every_experiment_takes_every_sampler(sampling: str) -> None:
    """What an experiment sets of its default sampler must not stick to another one."""
    rule = load_sampler(sampling)
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        for name in options("exp"):
            composed = compose(
                "config", overrides=rewrite_overrides([f"+exp={name}", f"sampling={sampling}"])
            )
            values = OmegaConf.to_container(composed.sampling, resolve=True)
            assert isinstance(values, dict)
            known = {field.name for field in dataclasses.fields(rule.Config)} | {"rule"}
            assert set(values) <= known, name


def test_paths_are_swept_over_where_asked() -> None:
    assert rewrite_overrides(["-m", "model.path=a,b"]) == ["++model.path=a,b", "-m"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["exp.role=last"], "No experiment was chosen"),
        (["+exp=attention_drift", "exp.name=pairs"], "There is no experiment 'pairs'"),
        (["+exp=attention_drift", "threads=0"], "threads"),
        (["+exp=attention_drift", "exp.key_fraction=2"], "exp.key_fraction"),
        (["+exp=attention_drift", "exp.feature=foo"], "exp.feature"),
        (["+exp=attention_drift", "exp.layers=erly"], "Did you mean 'early'?"),
        (["+exp=attention_drift", "exp.item_figures=-1"], "exp.item_figures"),
        (["+exp=attention_drift", "backend.max_new_tokens=0"], "backend.max_new_tokens"),
        (["+exp=attention_drift", "data.path=${foo}"], "foo"),
        (["+exp=attention_drift", "out=/proc/nope"], "out=DIR"),
    ],
)
def test_a_wrong_configuration_is_one_clear_line(tmp_path: Path, arguments: list[str], said: str) -> None:
    run = diagnose(*arguments, cwd=tmp_path)
    assert run.returncode == 2, run.stderr
    assert said in " ".join(run.stderr.split())
    assert "Traceback" not in run.stderr
    assert list(tmp_path.iterdir()) == []


def test_swept_options_are_each_checked() -> None:
    assert rewrite_overrides(["model=tiny,qwen3_vl_8b"]) == ["model=tiny,qwen3_vl_8b"]
    with pytest.raises(ConfigError, match="qwen3_vl_9b"):
        rewrite_overrides(["model=tiny,qwen3_vl_9b"])


def test_options_of_a_further_folder_are_known(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.yaml").write_text("# My own\nname: mine\npath: /somewhere\n")
    arguments = ["--config-dir", str(tmp_path), "model=mine"]
    assert rewrite_overrides(arguments) == arguments


def test_every_group_has_options_and_the_listing_names_the_groups() -> None:
    assert config_folder() == ROOT / "conf" or config_folder().parent.name == "diagnostics"
    assert all(options(group) for group in GROUPS)
    assert "Experiments (+exp=...)" in listing()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["attention_drift"], "Write +exp=attention_drift."),
        (["--exp=attention_drift"], "Write +exp=attention_drift, without dashes."),
        (["+exp=attention_drift", "data.path", "=", "x.jsonl"], "Write KEY=VALUE, without spaces"),
        (["+exp=attention_drift", "data.path = x.jsonl"], "Write data.path=x.jsonl."),
    ],
)
def test_what_hydra_would_take_for_something_else_is_refused(arguments: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        rewrite_overrides(arguments)


def test_hydras_own_forms_pass() -> None:
    arguments = ["--config-dir", "conf", "--cfg", "job", "+exp=check", "~exp.seed", "--config-dir=more"]
    with pytest.raises(ConfigError, match="There is no exp=nothing"):  # the last one, so the others passed
        rewrite_overrides([*arguments, "exp=nothing"])
    assert rewrite_overrides(arguments) == arguments


def test_a_folder_of_ones_own_is_listed(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.yaml").write_text("# My tuned model. It is new.\nname: mine\npath: /mine\n")
    for arguments in (["--config-dir", str(tmp_path)], [f"--config-dir={tmp_path}"]):
        assert is_listing(arguments)
        (line,) = [line for line in listing(arguments).splitlines() if line.split()[:1] == ["mine"]]
        assert line.endswith("My tuned model")
    assert is_listing([])
    assert not is_listing(["--config-dir", str(tmp_path), "+exp=check"])
    assert not is_listing([f"--config-dir={tmp_path}", "+exp=check"])
    assert "mine" not in listing()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_a_file_that_cannot_be_written_ends_the_run_with_a_sentence(tmp_path: Path) -> None:
    """Files of 16 KiB at most stand in for a full disk: the first tensor file does not fit."""
    (tmp_path / "clip_fps1").mkdir()
    for number in range(4):
        Image.new("RGB", (32, 32), (40 * number, 90, 120)).save(tmp_path / "clip_fps1" / f"{number}.jpg")
    line = {
        "id": "q",
        "video": "clip_fps1",
        "question": "What colour?",
        "options": ["red", "blue"],
        "answer": "A",
    }
    (tmp_path / "mine.jsonl").write_text(json.dumps(line))
    program = (
        "import resource, runpy\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (16384, 16384))\n"
        "runpy.run_module('diagnostics', run_name='__main__')\n"
    )
    arguments = ["+exp=attention_drift", "data=jsonl", "data.path=mine.jsonl", "sampling.budget=4", "out=run"]
    run = subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 1, run.stderr
    (told,) = run.stderr.splitlines()
    assert told.startswith("error: ")
    assert "What is finished is kept" in told
    log = (tmp_path / "run" / "run.0.log").read_text()
    assert "Traceback" in log
    assert "write_tensors" in log
