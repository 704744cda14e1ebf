"""Comparing finished runs whose numbers are known: no model, no video."""

from __future__ import annotations

import dataclasses
import io
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from PIL import Image
from rich.console import Console
from scipy import stats

from diagnostics.catalogue import config_folder, rewrite_overrides
from diagnostics.config import run_config
from diagnostics.errors import ConfigError, ForeignFolderError, IncompleteRunError, RunError
from diagnostics.experiments.compare_manifests import differences, name_runs
from diagnostics.experiments.compare_numbers import PAIRED, UNPAIRED, difference_rows
from diagnostics.report.merged import merged_figure
from diagnostics.report.style import MAX_RUNS
from diagnostics.run import execute
from diagnostics.store import Record, RunFolder, Summary, config_hash, open_finished, read_summary

from ...finished_runs import CONFIG, write_run
from .conftest import Diagnose, environment


def similar(unit: float, patch: float, spread: float = 0.01, n: int = 8, seed: int = 0) -> list[dict]:
    rng = np.random.default_rng(seed)
    return [
        {
            "unit_similarity": unit + spread * rng.normal(),
            "patch_similarity": patch + spread * rng.normal(),
            "unit_fraction_90": 0.7 + 0.01 * rng.normal(),
            "correct": bool(rng.integers(2)),
        }
        for _ in range(n)
    ]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of other items, needle and redundant, in one folder; `redundant` is first in the alphabet."""
    root = tmp_path_factory.mktemp("sweep")
    write_run(root / "run-b", similar(0.60, 0.70), prefix="n", data__split="needle")
    write_run(root / "run-a", similar(0.80, 0.90, seed=1), prefix="r", data__split="redundant")
    (root / ".multirun").mkdir()
    (root / "notes.txt").write_text("not a run")
    return root


def compare(out: Path, runs: str | Path, *arguments: str) -> str:
    """`+exp=compare exp.runs=RUNS out=OUT ...` in this process; returns what it prints, on one line."""
    given = ["+exp=compare", f"exp.runs={runs}", f"out={out}", *arguments]
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        values = OmegaConf.to_container(compose("config", overrides=rewrite_overrides(given)), resolve=True)
    console = Console(file=io.StringIO(), width=200)
    execute(run_config(values), multirun=False, console=console)
    return " ".join(console.file.getvalue().split())


@pytest.fixture
def plain_runs(tmp_path: Path) -> Path:
    """Two runs of an experiment that draws nothing when compared, in one folder."""
    for name, level in (("a", 0.1), ("b", 0.3)):
        values = [{"evidence_ratio": level + 0.01 * n} for n in range(4)]
        write_run(tmp_path / "plain" / name, values, experiment="evidence_sparsity", seed=level)
    return tmp_path / "plain"


@pytest.fixture(scope="module")
def comparison(sweep: Path, diagnose: Diagnose, tmp_path_factory: pytest.TempPathFactory):
    out = tmp_path_factory.mktemp("compared") / "run"
    done = diagnose("+exp=compare", f"exp.runs={sweep}", f"out={out}")
    assert done.returncode == 0, done.stdout + done.stderr
    return out, done.stdout


def table(out: Path, name: str = "comparison") -> pd.DataFrame:
    return pd.read_csv(out / "tables" / f"{name}.csv", keep_default_na=False, na_values=[""])


def test_means_are_the_runs_own_and_differences_those_of_the_records(comparison, sweep):
    rows = table(comparison[0]).fillna({"against": ""}).set_index(["measure", "run", "against"])
    found = {}
    for name, folder in (("needle", "run-b"), ("redundant", "run-a")):
        metrics = read_summary(sweep / folder).metrics
        for measure in ("unit_similarity", "accuracy"):
            row = rows.loc[(measure, name, "")]
            assert (row["value"], row["ci_low"], row["ci_high"]) == pytest.approx(
                (metrics[measure].mean, metrics[measure].ci_low, metrics[measure].ci_high)
            )
            assert (row["kind"], row["n"]) == ("mean", 8)
        found[name] = [r.measures["unit_similarity"] for r in open_finished(sweep / folder).records]
    row = rows.loc[("unit_similarity", "redundant", "needle")]
    assert row["kind"] == UNPAIRED, "no item is shared"
    assert row["value"] == pytest.approx(np.mean(found["redundant"]) - np.mean(found["needle"]))
    videos = [np.reshape(values, (4, 2)).mean(axis=1) for values in (found["needle"], found["redundant"])]
    theirs = stats.bootstrap(
        videos,
        lambda a, b, axis: b.mean(axis=axis) - a.mean(axis=axis),
        vectorized=True,
        method="percentile",
        n_resamples=20_000,
    ).confidence_interval
    width = theirs.high - theirs.low
    assert row["ci_low"] == pytest.approx(theirs.low, abs=0.1 * width)
    assert row["ci_high"] == pytest.approx(theirs.high, abs=0.1 * width)


def test_tables_differences_and_figures_are_written(comparison):
    out, _ = comparison
    for name in ("comparison", "differences"):
        for suffix in ("csv", "md", "tex"):
            assert (out / "tables" / f"{name}.{suffix}").stat().st_size > 0
    told = json.loads((out / "differences.json").read_text())
    assert told["differences"]["data.split"] == {"needle": "needle", "redundant": "redundant"}
    assert set(told["differences"]) == {"data.split"}
    assert told["runs"]["redundant"]["folder"].endswith("run-a")
    assert table(out, "differences").to_dict("records") == [
        {"setting": "data.split", "needle": '"needle"', "redundant": '"redundant"'}
    ]
    pixels = np.asarray(Image.open(out / "figures" / "attention_drift.png").convert("RGB"))
    assert pixels.std() > 10
    for stem in ("attention_drift", "attention_over_time"):
        assert (out / "figures" / f"{stem}.pdf").exists()


def test_the_sentence_is_on_the_screen_and_beside_the_figure(comparison):
    out, printed = comparison
    sentence = (out / "sentences.txt").read_text().strip()
    assert sentence.startswith(
        "Unit similarity and patch similarity are higher on redundant than on needle, "
        "with 95% intervals apart (unit similarity 0."
    )
    assert sentence in " ".join(printed.split())


def test_the_manifest_and_the_folder_tell_of_the_comparison_alone(comparison):
    manifest = json.loads((comparison[0] / "manifest.json").read_text())
    assert set(manifest["config"]) == {"exp", "out"}
    assert [run["run"] for run in manifest["checks"]["compared"]] == ["needle", "redundant"]
    page = (comparison[0] / "report.html").read_text()
    assert "<title>Comparison · attention drift · needle, redundant</title>" in page
    assert "the log in run.*.log" in page
    assert "questions" not in comparison[1], "nothing is said of a data set that was not read"


def test_a_model_or_data_set_is_no_part_of_it(plain_runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments in ((), ("model=tiny_random", "data.n_videos=3")):
        compare("null", plain_runs, *arguments)
    (folder,) = (tmp_path / "outputs" / "compare").iterdir()
    assert "-" not in folder.name, "its name is the hash alone"


def test_overlapping_intervals_are_not_called_apart(tmp_path):
    write_run(tmp_path / "a", similar(0.60, 0.70, spread=0.2), prefix="n", data__split="needle")
    write_run(tmp_path / "b", similar(0.63, 0.99, spread=0.2, seed=5), prefix="r", data__split="redundant")
    runs = [read_summary(tmp_path / name).metrics["unit_similarity"] for name in "ab"]
    assert min(run.ci_high for run in runs) > max(run.ci_low for run in runs), "the case is not as built"
    printed = compare(tmp_path / "out", tmp_path)
    higher = "redundant than on needle" if runs[1].mean > runs[0].mean else "needle than on redundant"
    assert f"Unit similarity is higher on {higher}, but the 95% intervals overlap" in printed
    assert "Unit similarity and patch similarity" not in printed


def test_runs_that_share_items_are_compared_item_by_item(tmp_path):
    before = similar(0.6, 0.7, spread=0.2)
    after = [{**v, "unit_similarity": v["unit_similarity"] + 0.05 + 0.001 * i} for i, v in enumerate(before)]
    write_run(tmp_path / "a", before, sampling__budget=32, experiment="undrawn")
    write_run(tmp_path / "b", after[:6], sampling__budget=64, experiment="undrawn")
    compare(tmp_path / "out", tmp_path)
    rows = table(tmp_path / "out").set_index(["measure", "kind"])
    row = rows.loc[("unit_similarity", PAIRED)]
    assert (row["run"], row["against"], row["n"]) == ("budget=64", "budget=32", 6)
    assert row["value"] == pytest.approx(0.05 + 0.001 * np.mean(range(6)))
    assert 0.05 <= row["ci_low"] < row["value"] < row["ci_high"] <= 0.056, "noise of the items is gone"
    assert rows.loc[("patch_similarity", PAIRED), "value"] == 0
    assert UNPAIRED not in table(tmp_path / "out")["kind"].to_list()


def test_items_that_ask_something_else_under_one_id_are_not_paired(tmp_path):
    values = similar(0.6, 0.7)
    first = open_finished(write_run(tmp_path / "a", values))
    other = open_finished(write_run(tmp_path / "b", values, data__split="redundant"))
    changed = [_with(record, item_sha256="other") for record in other.records]
    runs = {"a": first, "b": _with(other, records=tuple(changed))}
    assert {row.condition["kind"] for row in difference_rows(runs, ["unit_similarity"])} == {UNPAIRED}


def test_conditions_are_never_mixed(tmp_path):
    conditions = [{"budget": 4}, {"budget": 8}]
    runs = {
        name: open_finished(
            write_run(tmp_path / name, similar(0.6, 0.7), conditions=conditions[: 2 - place], seed=place)
        )
        for place, name in enumerate("ab")
    }
    rows = difference_rows(runs, ["unit_similarity", "accuracy"])
    assert len(rows) == 2
    assert len({row.condition["condition"] for row in rows}) == 1, "only one condition is in both"


def test_a_measure_that_only_one_run_has_has_no_difference(tmp_path):
    write_run(tmp_path / "a", similar(0.6, 0.7), sampling__budget=32, experiment="undrawn")
    more = [{**values, "gini": 0.5} for values in similar(0.6, 0.7)]
    write_run(tmp_path / "b", more, sampling__budget=64, experiment="undrawn")
    printed = compare(tmp_path / "out", tmp_path, "exp.measures=[gini,accuracy]")
    assert "undefined (n=0)" in printed
    assert "unit_similarity" not in printed
    rows = table(tmp_path / "out")
    rows = rows[rows["measure"] == "gini"].set_index("run")
    assert rows["n"].to_dict() == {"budget=32": 0, "budget=64": 8}
    assert rows["value"].isna().to_dict() == {"budget=32": True, "budget=64": False}


def test_the_first_run_named_is_the_reference_whatever_the_order_on_disk(plain_runs, tmp_path):
    compare(tmp_path / "out", f"[{plain_runs}/b,{plain_runs}/*]", "exp.names=[first,second]")
    rows = table(tmp_path / "out").dropna(subset=["against"])
    assert set(rows["against"]) == {"first"}
    assert set(rows["run"]) == {"second"}, "a run named twice is taken once"
    assert (rows.set_index("measure").loc["evidence_ratio", "value"]) == pytest.approx(-0.2)


def test_runs_of_an_experiment_without_a_figure_get_their_tables(plain_runs, tmp_path):
    assert "evidence_ratio" in compare(tmp_path / "out", plain_runs)
    assert not (tmp_path / "out" / "figures").exists()
    assert table(tmp_path / "out")["value"].to_list()[:2] == pytest.approx([0.115, 0.315])


def test_a_comparison_may_lie_among_its_runs_and_be_made_again(plain_runs):
    for _ in range(2):
        compare(plain_runs / "out", plain_runs)
    assert len(json.loads((plain_runs / "out" / "manifest.json").read_text())["attempts"]) == 2


@pytest.mark.parametrize(
    ("runs", "arguments", "error", "said"),
    [
        ("/nowhere", (), ForeignFolderError, "There is no such folder"),
        ("[{plain}/nothing-*]", (), ForeignFolderError, "There is no run in it"),
        ("{plain}/a", (), RunError, "Only one run"),
        ("{plain}", ("exp.names=[a]",), ConfigError, "1 different names for 2 runs"),
        ("{plain}", ("exp.names=[a,a]",), ConfigError, "1 different names for 2 runs"),
        ("{plain}", ("exp.measures=[evidence_ratoi]",), ConfigError, "Did you mean 'evidence_ratio'"),
        ("[{plain},{other}]", (), RunError, "different experiments .*evidence_sparsity.*attention_drift"),
        ("[{plain},{failed}]", (), IncompleteRunError, "no item was measured"),
        ("[{plain},{broken}]", (), IncompleteRunError, "has no summary.json"),
    ],
)
def test_bad_input_is_refused_by_name(sweep, plain_runs, tmp_path, runs, arguments, error, said):
    with _reopened(tmp_path / "failed", CONFIG, "evidence_sparsity") as folder:
        folder.append(Record(item_id="a", video_id="v", error={"type": "VideoError", "message": "no"}))
        folder.write_summary(Summary.of("evidence_sparsity", folder.records(), {}))
    broken = write_run(tmp_path / "broken", similar(0.6, 0.7, n=1), experiment="evidence_sparsity")
    (broken / "summary.json").unlink()
    places = {"plain": plain_runs, "other": sweep / "run-a", "failed": tmp_path / "failed", "broken": broken}
    with pytest.raises(error, match=said):
        compare(tmp_path / "out", runs.format(**places), *arguments)


def test_on_the_command_line_a_refusal_is_one_line(diagnose, plain_runs, tmp_path):
    done = diagnose("+exp=compare", f"out={tmp_path / 'out'}")
    assert done.returncode == 2
    assert "exp.runs must be given" in done.stderr
    done = diagnose("+exp=compare", f"exp.runs={plain_runs}/a", f"out={tmp_path / 'out'}")
    assert done.returncode == 2
    assert "Only one run" in done.stderr
    assert "Traceback" not in done.stderr


def test_unfinished_runs_are_refused(tmp_path):
    folder = write_run(tmp_path / "short", similar(0.6, 0.7), expected=9)
    with pytest.raises(IncompleteRunError, match="8 of 9 pairs"):
        open_finished(folder)
    folder = write_run(tmp_path / "going-on", similar(0.6, 0.7))
    config = {**CONFIG}
    again = _reopened(folder, config)
    assert len(again.finished) == 8
    with pytest.raises(IncompleteRunError, match="goes on or was killed"):
        open_finished(folder)
    again.close("RuntimeError")
    with pytest.raises(IncompleteRunError, match="ended by RuntimeError"):
        open_finished(folder)
    with _reopened(folder, config):
        pass
    assert len(open_finished(folder).records) == 8
    (folder / "manifest.json").unlink()
    with pytest.raises(ForeignFolderError, match="no manifest"):
        open_finished(folder)


def named(tmp_path: Path, *settings: dict) -> list[str]:
    runs = [
        open_finished(write_run(tmp_path / f"run-{place}", similar(0.6, 0.7, n=2), **each))
        for place, each in enumerate(settings)
    ]
    return name_runs(runs, differences(runs))


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ([{"data__split": "a"}, {"data__split": "b"}], ["a", "b"]),
        (
            [{"model__name": "m", "model__path": "/a/b"}, {"model__name": "n", "model__path": "/c"}],
            ["m", "n"],
        ),
        ([{"sampling__budget": 4}, {"sampling__budget": 8}], ["budget=4", "budget=8"]),
        ([{"data__limit": None}, {"data__limit": 4}], ["limit=null", "limit=4"]),
        (
            [{"data__split": "a", "model__name": "m"}, {"data__split": "b", "model__name": "n"}],
            ["m a", "n b"],
        ),
        ([{"exp__top": "x" * 70}, {"exp__top": "y"}], ["run-0", "run-1"]),
        ([{}, {}], ["run-0", "run-1"]),
        ([{"data__name": "j"}, {"data__name": "j", "data__path": "p"}], ["path=(not set)", "p"]),
    ],
)
def test_runs_are_named_by_what_differs(tmp_path, settings, names):
    assert named(tmp_path, *settings) == names


def test_more_runs_than_one_figure_tells_apart_are_compared_without_it(tmp_path):
    for budget in range(MAX_RUNS + 1):
        write_run(tmp_path / str(budget), similar(0.6, 0.7, n=2), sampling__budget=budget)
    printed = compare(tmp_path / "out", tmp_path)
    assert f"{MAX_RUNS + 1} runs are not drawn" in printed
    assert len(set(table(tmp_path / "out")["run"])) == MAX_RUNS + 1
    assert not (tmp_path / "out" / "figures").exists()


def test_what_cannot_change_results_is_no_difference(tmp_path):
    settings: Sequence[dict] = [
        {"out": "x", "threads": 1},
        {"out": "y", "threads": 8, "model__device": "cuda"},
    ]
    runs = [
        open_finished(write_run(tmp_path / f"{place}", similar(0.6, 0.7, n=2), **each))
        for place, each in enumerate(settings)
    ]
    assert differences(runs) == {}


def test_versions_and_commits_that_differ_are_told(tmp_path):
    runs = [
        open_finished(write_run(tmp_path / name, similar(0.6, 0.7, n=2), data__split=name)) for name in "ab"
    ]
    attempt = _with(runs[1].attempts[0], versions={**runs[1].attempts[0].versions, "torch": "0.0"})
    idle = _with(attempt, attempt=2, counts=_with(attempt.counts, finished=0), versions={})
    runs[1] = _with(runs[1], attempts=(attempt, idle))
    found = differences(runs)
    assert list(found) == ["data.split", "ran with.versions.torch"]
    assert found["ran with.versions.torch"][1] == '"0.0"', "of the attempt that measured"


def test_it_loads_no_model_code(sweep, tmp_path, cache):
    code = (
        "import sys\n"
        "sys.argv = ['diagnostics', '+exp=compare', *sys.argv[1:]]\n"
        "from diagnostics.__main__ import main\n"
        "main()\n"
        "assert 'torch' not in sys.modules, 'torch was imported'\n"
    )
    command = [sys.executable, "-c", code, f"exp.runs={sweep}", f"out={tmp_path / 'out'}"]
    done = subprocess.run(command, env=environment(cache), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def _with(thing, **changes):
    return dataclasses.replace(thing, **changes)


def _reopened(folder: Path, config: dict, experiment: str = "attention_drift") -> RunFolder:
    return RunFolder.open(folder, config, config_hash(config), experiment=experiment)


# -- right answers by condition and task


LADDER = [{"budget": budget, "frames": "uniform", "seed": seed} for budget in (16, 4) for seed in (0, 1)]


def answered(folder: Path, right: Sequence[Sequence[bool]], conditions: Sequence[dict], **settings) -> Path:
    """A run whose item `i` is of task `t0` or `t1` in turn, right under condition `c` where `right[i][c]`."""
    config = {**CONFIG, **settings}
    with RunFolder.open(folder, config, config_hash(config), experiment="frame_scaling") as run:
        run.expect(len(right) * len(conditions))
        for number, row in enumerate(right):
            for correct, condition in zip(row, conditions, strict=True):
                run.append(
                    Record(
                        item_id=f"i{number}", video_id=f"v{number // 2}", task=f"t{number % 2}", target="A",
                        answer="A" if correct else "B", correct=correct, condition=condition,
                    )
                )  # fmt: skip
        run.write_summary(Summary.of("frame_scaling", run.records(), {}))
    return folder


@pytest.fixture
def ladders(tmp_path: Path) -> tuple[Path, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    first, second = rng.random((12, 4)) < 0.3, rng.random((12, 6)) < 0.8
    more = [*LADDER, {"budget": 8, "frames": "uniform", "seed": 0}, {"budget": 4, "frames": "nested"}]
    answered(tmp_path / "runs" / "a", first.tolist(), LADDER)
    answered(tmp_path / "runs" / "b", second.tolist(), more, seed=1)
    return tmp_path / "runs", first, second


def test_accuracy_by_condition_and_task_averages_seeds_and_pairs_items(ladders, tmp_path):
    runs, first, second = ladders
    compare(tmp_path / "out", f"[{runs}/a,{runs}/b]", "exp.names=[one,two]")
    found = table(tmp_path / "out", "accuracy")
    assert set(found["task"]) == {"all", "t0", "t1"}
    assert list(dict.fromkeys(found["condition"])) == [
        "uniform, budget=4", "uniform, budget=8", "uniform, budget=16", "nested, budget=4",
    ]  # fmt: skip
    for task, items in (("all", slice(None)), ("t0", slice(0, None, 2)), ("t1", slice(1, None, 2))):
        rows = found[found["task"] == task].set_index(["condition", "run"])
        for label, columns in (("uniform, budget=16", [0, 1]), ("uniform, budget=4", [2, 3])):
            means = [one[items][:, columns].mean(axis=1) for one in (first, second)]
            for name, mean in zip(("one", "two"), means, strict=True):
                assert rows.loc[(label, name), "accuracy"] == pytest.approx(mean.mean())
                assert rows.loc[(label, name), "n"] == len(mean)
            row = rows.loc[(label, "two")]
            assert row["against"] == "one"
            assert row["difference"] == pytest.approx((means[1] - means[0]).mean())
            assert row["shared"] == len(means[0])
            sums = (means[1] - means[0]).reshape(6, -1).sum(axis=1)
            signs = np.array(np.meshgrid(*[[-1, 1]] * 6)).reshape(6, -1)
            expected = np.mean(np.abs(sums @ signs) >= abs(sums.sum()) - 1e-9)
            assert row["p"] == pytest.approx(expected), "sign flips of whole videos"
        alone = rows.loc[("nested, budget=4", "two")]
        assert alone["accuracy"] == pytest.approx(second[items][:, 5].mean())
        assert np.isnan(alone["difference"]), "the first run has no such rung"
        assert alone["shared"] == 0


def test_runs_of_a_research_question_merge_into_one_figure(ladders, tmp_path):
    runs, *_ = ladders
    printed = compare(tmp_path / "out", runs)
    assert "figure by task" in printed
    for name in ("frame_scaling", "frame_scaling_by_task"):
        picture = np.asarray(Image.open(tmp_path / "out" / "figures" / f"{name}.png").convert("RGB"))
        assert picture.std() > 10
    found = table(tmp_path / "out", "accuracy")
    names = list(dict.fromkeys(found["run"]))
    for by_task, tasks in ((False, ["all"]), (True, ["t0", "t1"])):
        figure = merged_figure(found, names, by_task=by_task)
        panels = [axes for axes in figure.axes if axes.get_visible()]
        assert len(panels) == len(tasks)
        for axes, task in zip(panels, tasks, strict=True):
            for container, name in zip(axes.containers, names, strict=True):
                rows = found[(found["task"] == task) & (found["run"] == name)].set_index("condition")
                expected = rows["accuracy"].reindex(dict.fromkeys(found["condition"]))
                np.testing.assert_array_equal(container[0].get_xdata(), expected)


def test_too_many_runs_of_a_research_question_get_their_tables_alone(tmp_path):
    for number in range(MAX_RUNS + 1):
        answered(tmp_path / "runs" / str(number), [[True, False, True, True]] * 2, LADDER, seed=number)
    printed = compare(tmp_path / "out", tmp_path / "runs")
    assert f"{MAX_RUNS + 1} runs are not drawn" in printed
    assert len(set(table(tmp_path / "out", "accuracy")["run"])) == MAX_RUNS + 1
    assert not (tmp_path / "out" / "figures").exists()
