"""Run folders: made, resumed, refused, locked, swept, merged."""

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from diagnostics.errors import (
    ConfigError,
    ConfigurationMismatchError,
    DamagedRunError,
    DuplicateRecordError,
    ForeignFolderError,
    InconsistentTensorsError,
    LockedError,
    PathLeavesRootError,
    UnwritableFolderError,
)
from diagnostics.store import (
    Failure,
    Metric,
    RunFolder,
    Summary,
    config_hash,
    pair_file_name,
    pair_stem,
    read_manifests,
    read_records,
    read_summary,
    read_tensors,
    tensor_path,
)
from diagnostics.store.manifest import git_state, package_versions

ROOT = Path(__file__).parents[3]
CONFIG = {"model": {"name": "tiny"}, "seed": 1}


def open_run(path, shard=0, n_shards=1, config=None, **more):
    config = config or CONFIG
    return RunFolder.open(path, config, config_hash(config), shard=shard, n_shards=n_shards, **more)


def test_a_run_goes_on_where_it_ended(tmp_path, make_record, make_tensors):
    out = tmp_path / "new" / "run"
    with open_run(out, experiment="attention_drift", gpus=["H200"]) as run:
        assert (run.attempt, run.finished) == (1, set())
        saved = run.save(make_record("a/b"), make_tensors("a/b"))
        run.append(make_record("c", error=Failure.of(ValueError("no"))))
        run.note("capture_check", {"logit_difference": 0.0})
        run.expect(2)
    assert saved.tensor_file == f"tensors/{pair_file_name('a/b', '-')}"
    assert saved.config_hash == config_hash(CONFIG)
    assert saved.axes == make_tensors().axes
    assert read_tensors(tensor_path(out, saved)).item_id == "a/b"
    with open_run(out) as run:
        assert (run.attempt, run.finished) == (2, {("a/b", "-")})
        run.append(make_record("c", raw="B"))
    assert [(r.item_id, r.attempt, r.error) for r in read_records(out)] == [("a/b", 1, None), ("c", 2, None)]
    (manifest,) = read_manifests(out)
    assert not list(out.glob("manifest.*.*.json"))
    assert (manifest.experiment, manifest.config, manifest.config_hash) == (
        "attention_drift", CONFIG, config_hash(CONFIG),
    )  # fmt: skip
    assert manifest.checks["capture_check"] == {"logit_difference": 0.0}
    assert [(a.attempt, a.outcome, a.counts.finished, a.counts.failed) for a in manifest.attempts] == [
        (1, "done", 1, 1),
        (2, "done", 1, 0),
    ]
    assert (manifest.counts.finished, manifest.counts.failed) == (2, 0)
    assert manifest.attempts[0].machine.gpus == ["H200"]
    assert manifest.started == manifest.attempts[0].started
    assert manifest.ended == manifest.attempts[1].ended


def test_the_manifest_says_what_ran(tmp_path):
    with open_run(tmp_path) as run:
        live = json.loads((tmp_path / "manifest.0.1.json").read_text())
        assert live["ended"] is None
    del run
    (attempt,) = read_manifests(tmp_path)[0].attempts
    assert attempt.versions["h5py"] == package_versions()["h5py"] == __import__("h5py").__version__
    assert attempt.pid == os.getpid()
    assert attempt.command[1:] == sys.orig_argv[1:]
    head = subprocess.run(
        ["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    if head.returncode == 0:
        assert attempt.git["commit"] == head.stdout.strip()
    else:
        assert attempt.git is None


def test_a_checkout_that_is_not_ours_tells_no_commit(tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / "site-packages").mkdir()
    assert git_state(tmp_path) is None  # no commit yet
    identity = ["-c", "user.name=n", "-c", "user.email=e"]
    commit = ["git", "-C", tmp_path, *identity, "commit", "-q", "--allow-empty", "-m", "m"]
    subprocess.run(commit, check=True)
    assert git_state(tmp_path)["dirty"] is False
    assert git_state(tmp_path / "site-packages") is None
    (tmp_path / "new").touch()
    assert git_state(tmp_path)["dirty"] is True


def test_imports_stay_light():
    code = "import sys, diagnostics.store; print({'torch', 'transformers', 'av'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "set()"


def test_another_configuration_is_refused_by_its_keys(tmp_path, make_record):
    with open_run(tmp_path) as run:
        run.append(make_record())
    other = {"model": {"name": "big", "dtype": "bf16"}, "seed": 1}
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConfigurationMismatchError) as caught:
        open_run(tmp_path, config=other)
    message = str(caught.value)
    assert 'model.name: "tiny" there, "big" here' in message
    assert 'model.dtype: (not set) there, "bf16" here' in message
    assert "seed" not in message
    assert str(tmp_path) in message
    assert sorted(tmp_path.rglob("*")) == before
    with open_run(tmp_path) as run:  # and the refusal leaves no lock behind
        assert run.attempt == 2


def test_a_folder_in_which_nothing_was_measured_may_take_another_configuration(tmp_path, make_record):
    """A misspelt model leaves a manifest and no record; the corrected command goes on in its folder."""
    with open_run(tmp_path):
        pass
    other = {"model": {"name": "tiny", "path": "corrected"}, "seed": 1}
    with open_run(tmp_path, config=other) as run:
        run.append(make_record())
    assert [manifest.config for manifest in read_manifests(tmp_path)] == [other]
    with pytest.raises(ConfigurationMismatchError):
        open_run(tmp_path)


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UnwritableFolderError, match="out=DIR"):
        open_run(tmp_path / "file" / "run")


def test_a_pair_is_measured_again_once_it_is_reopened(tmp_path, make_record):
    with open_run(tmp_path) as run:
        run.append(make_record(raw="old"))
    with open_run(tmp_path) as run:
        (pair,) = run.finished
        with pytest.raises(DuplicateRecordError):
            run.append(make_record(raw="new"))
        run.reopen(pair, "the question was changed")
        run.append(make_record(raw="new"))
    assert [record.raw for record in read_records(tmp_path)] == ["new"]


def test_keys_that_change_no_result_may_differ(tmp_path, make_record):
    ignore = {"workers"}
    for workers in (1, 2):
        config = {"seed": 1, "workers": workers}
        with RunFolder.open(tmp_path, config, config_hash(config, ignore), ignore=ignore) as run:
            assert run.attempt == workers
            if workers == 1:
                run.append(make_record())
    changed = {"seed": 2, "workers": 3}
    with pytest.raises(ConfigurationMismatchError, match="seed: 1 there, 2 here") as caught:
        RunFolder.open(tmp_path, changed, config_hash(changed, ignore), ignore=ignore)
    assert "workers" not in str(caught.value)


def test_a_folder_that_is_no_run_is_refused_untouched(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(ForeignFolderError, match=r"thesis\.tex"):
        open_run(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(ForeignFolderError, match="is a file"):
        open_run(tmp_path / "thesis.tex")
    (tmp_path / "thesis.tex").rename(tmp_path / "samples.0.jsonl")  # records without a manifest
    with pytest.raises(ForeignFolderError, match=r"samples\.0\.jsonl"):
        open_run(tmp_path)


@pytest.mark.parametrize("text", ["{}", "[]", "not json", '{"schema": 99}', '{"schema": 1}'])
def test_somebody_elses_manifest_is_refused(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(DamagedRunError, match="no manifest"):
        open_run(tmp_path)
    assert (tmp_path / "manifest.json").read_text() == text


def test_what_hydra_and_slurm_leave_is_no_obstacle(tmp_path):
    (tmp_path / ".hydra").mkdir()
    (tmp_path / "main.log").write_text("started")
    with open_run(tmp_path) as run:
        assert run.attempt == 1


@pytest.mark.parametrize(("shard", "n_shards"), [(1, 1), (-1, 2), (0, 0)])
def test_a_shard_that_does_not_exist_is_refused(tmp_path, shard, n_shards):
    with pytest.raises(ConfigError):
        open_run(tmp_path / "run", shard, n_shards)
    assert not (tmp_path / "run").exists()


HOLD = """
import sys
from diagnostics.store import RunFolder, config_hash
config = {"model": {"name": "tiny"}, "seed": 1}
shard, n_shards = int(sys.argv[2]), int(sys.argv[3])
run = RunFolder.open(sys.argv[1], config, config_hash(config), shard=shard, n_shards=n_shards)
print("open", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def hold():
    """Starts processes that hold a shard until they are killed."""
    held = []

    def start(path, shard=0, n_shards=1):
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(path), str(shard), str(n_shards)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        )  # fmt: skip
        held.append(process)
        assert process.stdout.readline() == "open\n"
        return process

    yield start
    for process in held:
        process.kill()
        process.communicate()


def test_two_processes_never_write_one_shard(tmp_path, hold):
    holder = hold(tmp_path, 0, 2)
    with pytest.raises(LockedError) as caught:
        open_run(tmp_path, 0, 2)
    assert f"process {holder.pid} on {os.uname().nodename}, since 20" in str(caught.value)
    with open_run(tmp_path, 1, 2) as run:  # the other shard is free, and the holder still holds
        assert run.attempt == 1
    assert (tmp_path / "manifest.0.1.json").exists(), "manifests were merged while a shard was being written"
    with pytest.raises(LockedError, match="going on in 2 shards, not 3"):
        open_run(tmp_path, 1, 3)
    holder.kill()
    holder.wait()
    with open_run(tmp_path, 0, 3) as run:  # a dead holder blocks nobody
        assert run.attempt == 2
    attempts = read_manifests(tmp_path)[0].attempts
    assert [(a.attempt, a.shard, a.n_shards, a.outcome) for a in attempts] == [
        (1, 0, 2, None),
        (1, 1, 2, "done"),
        (2, 0, 3, "done"),
    ]


def test_one_process_cannot_open_a_shard_twice(tmp_path):
    with open_run(tmp_path), pytest.raises(LockedError, match=f"process {os.getpid()} on"):
        open_run(tmp_path)
    with open_run(tmp_path) as run:
        assert run.attempt == 2


FORK = """
import multiprocessing, os, sys
from diagnostics.store import RunFolder, config_hash
config = {"model": {"name": "tiny"}, "seed": 1}
run = RunFolder.open(sys.argv[1], config, config_hash(config))
ours = os.dup(0)  # multiprocessing closes the helper's standard input
def nap():
    print("open", flush=True)
    os.read(ours, 1)
multiprocessing.get_context("fork").Process(target=nap).start()
sys.stdin.read()
"""


def test_a_forked_helper_does_not_keep_a_killed_parents_lock(tmp_path):
    """A helper inherits the lock's descriptor; living on for a moment, it must not block the restart."""
    pipe, ours = os.pipe()
    parent = subprocess.Popen(
        [sys.executable, "-c", FORK, str(tmp_path)], stdin=pipe, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    os.close(pipe)
    try:
        assert parent.stdout.readline() == "open\n"
        parent.kill()
        parent.wait()
        with open_run(tmp_path) as run:
            assert run.attempt == 2
    finally:
        os.close(ours)  # the helper reads the end of its input and leaves
        parent.stdout.close()


def test_an_error_is_noted_and_frees_the_lock(tmp_path, make_record):
    def interrupted():
        with open_run(tmp_path) as run:
            run.append(make_record("a"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        interrupted()
    assert read_manifests(tmp_path)[0].attempts[0].outcome == "ZeroDivisionError"
    with open_run(tmp_path) as run:
        assert run.finished == {("a", "-")}


def test_nothing_is_counted_twice(tmp_path, make_record):
    with open_run(tmp_path) as run:
        run.append(make_record("a", error=Failure("E", "first try")))
        run.append(make_record("a"))  # a retry in one attempt is fine
        with pytest.raises(DuplicateRecordError) as caught:
            run.append(make_record("a"))
        assert caught.value.item_id == "a"
        run.append(make_record("a", {"budget": 8}))
    with pytest.raises(ValueError, match="closed"):
        run.append(make_record("b"))
    assert len(read_records(tmp_path)) == 2


def test_a_record_implies_its_tensors(tmp_path, make_record, make_tensors):
    with open_run(tmp_path) as run:
        with pytest.raises(ValueError, match="not as the record says"):
            run.append(make_record("a", tensor_file="tensors/none.h5"))
        good = make_tensors("a")
        bad = replace(good, attention=replace(good.attention, rest_mass=good.attention.rest_mass + 1))
        with pytest.raises(InconsistentTensorsError):
            run.save(make_record("a"), bad)
        assert read_records(tmp_path) == []
        assert list((tmp_path / "tensors").iterdir()) == []


@pytest.mark.parametrize("damage", ["delete", "cut", "empty", "other"])
def test_a_finished_pair_whose_tensors_are_lost_is_done_again(tmp_path, make_record, make_tensors, damage):
    with open_run(tmp_path) as run:
        saved = run.save(make_record("a"), make_tensors("a"))
        run.save(make_record("b"), make_tensors("b", units=5))
    path = tensor_path(tmp_path, saved)
    if damage == "delete":
        path.unlink()
    elif damage == "other":
        path.write_bytes((tmp_path / "tensors" / pair_file_name("b", "-")).read_bytes())
    else:
        path.write_bytes(path.read_bytes()[: 500 if damage == "cut" else 0])
    with open_run(tmp_path) as run:
        assert run.finished == {("b", "-")}
        assert list(run.redone) == [("a", "-")]
        run.save(make_record("a"), make_tensors("a"))
    with open_run(tmp_path) as run:
        assert run.finished == {("a", "-"), ("b", "-")}
    assert read_manifests(tmp_path)[0].checks["resumed"]["redone"] == 1


@pytest.mark.parametrize(
    "name", ["../secret.h5", "tensors/../../x.h5", "/etc/passwd", "tensors/..", "samples.0.jsonl"]
)
def test_a_record_cannot_point_outside_the_tensors(tmp_path, make_record, name):
    with pytest.raises(PathLeavesRootError):
        tensor_path(tmp_path, make_record(tensor_file=name))


def test_leftovers_are_swept_and_only_those(tmp_path, hold):
    holder = hold(tmp_path, 1, 2)
    leftovers = [f"tensors/.tmp-s{shard}-{'a' * 16}.partial" for shard in (0, 1, 7)]
    strangers = ["tensors/.tmp-s0-short.partial", "tensors/data.partial", ".tmp-notes"]
    (tmp_path / "tensors").mkdir(exist_ok=True)
    for name in leftovers + strangers:
        (tmp_path / name).touch()
    outside = tmp_path.parent / f".tmp-s0-{'a' * 16}.partial"
    outside.touch()
    with (tmp_path / "samples.0.jsonl").open("a") as torn:
        torn.write('{"item_id": "to')
    with open_run(tmp_path, 0, 2):
        live = json.loads((tmp_path / "manifest.0.1.json").read_text())
        assert live["checks"]["resumed"] == {"dropped_bytes": 15, "swept_files": 2, "redone": 0}
    left = {name for name in leftovers + strangers if (tmp_path / name).exists()}
    assert left == {leftovers[1], *strangers}, "shard 1 is alive: its file is not a leftover"
    assert outside.exists()
    holder.kill()


def test_the_number_of_shards_may_change_between_runs(tmp_path, make_record):
    for shard in range(3):
        with open_run(tmp_path, shard, 3) as run:
            assert run.attempt == 1, "shards of one cut are one attempt, even one after the other"
            run.append(make_record(f"done {shard}"))
            run.append(make_record(f"failed {shard}", error=Failure("E", "m")))
    with open_run(tmp_path, 0, 1) as run:
        assert run.attempt == 2
        assert run.finished == {(f"done {shard}", "-") for shard in range(3)}
        for shard in range(3):
            run.append(make_record(f"failed {shard}", raw="now it works"))
    with open_run(tmp_path, 4, 5) as run:
        assert run.attempt == 3
        assert len(run.finished) == 6
    records = read_records(tmp_path)
    assert len(records) == 6
    assert all(record.error is None for record in records)


def test_a_later_failure_in_a_lower_shard_counts(tmp_path, make_record):
    """Attempts order records across shards, whatever the shards' numbers."""
    with open_run(tmp_path, 1, 2) as run:
        run.append(make_record("a", error=Failure("Early", "m")))
    with open_run(tmp_path, 0, 1) as run:
        run.append(make_record("a", error=Failure("Late", "m")))
    assert [record.error.type for record in read_records(tmp_path)] == ["Late"]


def test_expected_pairs_are_known_when_every_shard_told(tmp_path):
    for shard, known in ((0, None), (1, 7)):
        with open_run(tmp_path, shard, 2) as run:
            run.expect(shard + 3)
        assert read_manifests(tmp_path)[0].counts.expected == known


def test_a_kill_between_merging_and_deleting_counts_no_attempt_twice(tmp_path):
    with open_run(tmp_path):
        kept = (tmp_path / "manifest.0.1.json").read_text()
    (tmp_path / "manifest.0.1.json").write_text(kept)
    with open_run(tmp_path) as run:
        assert run.attempt == 2
    assert [attempt.attempt for attempt in read_manifests(tmp_path)[0].attempts] == [1, 2]


@pytest.mark.parametrize("step", range(1, 7))
def test_a_start_that_dies_at_any_step_blocks_no_other(tmp_path, step):
    """Killed at each rename of its opening: what is left is empty, or a run."""
    code = textwrap.dedent(f"""
        import os, pathlib, signal
        from diagnostics.store import RunFolder, config_hash
        calls = 0
        real = os.mkdir if {step} % 2 else pathlib.Path.replace
        def count(*arguments, **named):
            global calls
            result = real(*arguments, **named)
            calls += 1
            if calls == {(step + 1) // 2}:
                os.kill(os.getpid(), signal.SIGKILL)
            return result
        if {step} % 2:
            os.mkdir = count
        else:
            pathlib.Path.replace = count
        config = {CONFIG!r}
        RunFolder.open({str(tmp_path / "run")!r}, config, config_hash(config)).close()
    """)
    died = subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT)
    assert died.returncode == -9
    with open_run(tmp_path / "run") as run:
        assert run.finished == set()


def test_thumbnails(tmp_path):
    frames = np.zeros((3, 360, 640, 3), dtype=np.uint8)
    frames[1] = (200, 30, 30)
    with open_run(tmp_path) as run:
        paths = run.save_thumbnails("a/b", "-", frames, [0, 7, 127])
        small = run.save_thumbnails("c", "-", frames[:1, :60, :80], [0])
        for wrong in ([0, 1], [0, 0, 1], [-1, 0, 1]):
            with pytest.raises(ValueError, match="indices"):
                run.save_thumbnails("a", "-", frames, wrong)
    assert paths == [f"thumbnails/{pair_stem('a/b', '-')}/{n:05d}.jpg" for n in (0, 7, 127)]
    with Image.open(tmp_path / paths[1]) as picture:
        assert (picture.format, picture.size) == ("JPEG", (160, 90))
        assert np.abs(np.asarray(picture, dtype=int) - (200, 30, 30)).max() <= 6, "the colour is another one"
    with Image.open(tmp_path / small[0]) as picture:
        assert picture.size == (80, 60)


def test_summary_and_tables_of_a_run(tmp_path, make_record):
    with open_run(tmp_path) as run:
        run.append(make_record("a", warnings=["frames: 3 of 8", "frames: 4 of 8", "resolution: lower"]))
        run.append(make_record("b", error=Failure("MissingVideoError", "no such file")))
        run.append(make_record("c", error=Failure("MissingVideoError", "nor this")))
        run.append(make_record("a", {"budget": 1}, error=Failure("OutOfMemoryError", "too big")))
        metrics = {"gini": Metric(0.5, 0.25, float("nan"), 1)}
        summary = Summary.of("attention_drift", run.records(), metrics)
        path = run.write_summary(summary)
        tables = run.write_table("gini", pd.DataFrame({"measure": ["gini"], "value": [0.5]}))
    values = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(name))
    assert (values["schema"], values["n_items"], values["n_pairs"], values["n_failed"]) == (1, 3, 4, 3)
    assert values["errors"] == {
        "MissingVideoError": {"n": 2, "item_id": "b", "message": "no such file"},
        "OutOfMemoryError": {"n": 1, "item_id": "a", "message": "too big"},
    }
    assert values["warnings"]["frames"]["n"] == 2
    assert values["metrics"] == {"gini": {"mean": 0.5, "ci_low": 0.25, "ci_high": None, "n": 1}}
    assert not summary.all_failed
    assert read_summary(tmp_path).errors == summary.errors
    assert [table.name for table in tables] == ["gini.csv", "gini.md", "gini.tex"]
    assert all(table.parent == tmp_path / "tables" for table in tables)
