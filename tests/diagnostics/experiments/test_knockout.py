"""Knockout through the command: what is blocked, numbers again from the files, bad input."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from scipy.special import softmax

from diagnostics.errors import ConfigError
from diagnostics.experiments.knockout import Config
from diagnostics.strict import from_mapping

from .conftest import Diagnose
from .told import lines_of, table

SMALL = ("+exp=knockout", "data.n_videos=3", "data.questions=2", "sampling.budget=16",
         "sampling.evidence_frames=2", "exp.unit_draws=2",
         "exp.by_head=options_to_last",
         "exp.paths=[cross_unit,video_to_options,video_to_right_option,video_to_other_options,"
         "last_to_last]")  # fmt: skip
PATHS = ("cross_unit", "video_to_options", "video_to_right_option", "video_to_other_options", "last_to_last")
ROADS = ["base", "text", "video", "evidence", "random_0", "random_1"]
LAYERS = [0, 1, 2, 3]


@pytest.fixture(scope="module")
def run(diagnose: Diagnose, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("knocked") / "run"
    done = diagnose(*SMALL, f"out={folder}")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def files(run: Path) -> dict[str, dict]:
    """What each item's file holds, and its record."""
    found = {}
    for line in lines_of(run):
        assert line["error"] is None
        with h5py.File(run / line["tensor_file"]) as file:
            assert file["layer"][...].tolist() == LAYERS
            roles = [name.decode() if isinstance(name, bytes) else name for name in file["role"][...]]
            arrays = {name: file[f"knockout/{name}"][...] for name in file["knockout"]}
        found[line["item_id"]] = {"line": line, "roles": roles, **arrays}
    return found


def test_every_path_is_blocked_in_every_window_and_in_all_layers(files: dict[str, dict]) -> None:
    for one in files.values():
        measures = one["line"]["measures"]
        for path in PATHS:
            for control in ("no", "random"):
                for layer in (*LAYERS, "all"):
                    assert np.isfinite(measures[f"change@path={path},control={control},layer={layer}"])
        assert one["roles"] == [name for path in PATHS for name in (path, f"{path}:random")]
        assert one["road_logits"].shape[0] == len(ROADS)
        assert measures["evidence_units"] >= 1


def test_choices_follow_from_the_logits_in_the_file(files: dict[str, dict]) -> None:
    for one in files.values():
        measures, gold = one["line"]["measures"], "ABCDEFGH".index(one["line"]["target"])
        choices = one["road_logits"].argmax(axis=-1)
        for road, chosen in zip(ROADS[:4], choices, strict=False):
            assert measures[f"accuracy@road={road}"] == (chosen == gold)
            assert measures[f"as_text@road={road}"] == (chosen == choices[1])
        assert measures["accuracy@road=random"] == np.mean(choices[4:] == gold)
        assert measures["choice_accuracy"] == (choices[0] == gold), "the reply's own first logits"
        for place, name in enumerate(one["roles"]):
            path, _, control = name.partition(":")
            told = f"@path={path},control={control or 'no'},layer="
            blocked = one["all_layers_logits"][place]
            assert measures[f"accuracy{told}all"] == (blocked.argmax() == gold)
            for row, layer in enumerate(LAYERS):
                assert measures[f"accuracy{told}{layer}"] == (
                    one["window_logits"][row, place].argmax() == gold
                )


def test_changes_are_near_those_among_the_options(files: dict[str, dict]) -> None:
    """The tiny model answers with a letter: over the vocabulary and among the options is nearly the same."""
    for one in files.values():
        gold = "ABCDEFGH".index(one["line"]["target"])
        base = softmax(one["road_logits"][0].astype(float))[gold]
        place = one["roles"].index("video_to_options")
        for row, layer in enumerate(LAYERS):
            blocked = softmax(one["window_logits"][row, place].astype(float))[gold]
            found = one["line"]["measures"][f"change@path=video_to_options,control=no,layer={layer}"]
            assert found == pytest.approx(100 * (blocked - base) / base, abs=2.0)


def test_the_negative_control_does_little_and_a_path_does_much(files: dict[str, dict]) -> None:
    def largest(path: str) -> float:
        told = f"@path={path},control=no,layer=all"
        return max(abs(one["line"]["measures"][f"change{told}"]) for one in files.values())

    assert largest("last_to_last") < 5
    assert largest("video_to_options") > 20


def test_tables_and_summary_are_means_of_the_records(run: Path, files: dict[str, dict]) -> None:
    flow, roads = table(run, "flow"), table(run, "roads")
    right = {name for name, one in files.items() if one["line"]["measures"]["accuracy@road=base"] == 1}
    for of, items in (("correct", right), ("all", set(files))):
        rows = flow[(flow["of"] == of) & (flow["task"] == "all")]
        assert len(rows) == (len(PATHS) * 2 * 5 if items else 0)
        for row in rows.to_dict("records"):
            told = f"change@path={row['path']},control={row['control']},layer={row['layer']}"
            wanted = np.mean([files[name]["line"]["measures"][told] for name in items])
            assert row["change"] == pytest.approx(wanted, rel=1e-6, abs=1e-9)
            assert row["n"] == len(items)
    summary = json.loads((run / "summary.json").read_text())
    accuracy = {
        road: np.mean([one["line"]["measures"][f"accuracy@road={road}"] for one in files.values()])
        for road in ("base", "text", "video", "evidence", "random")
    }
    whole = roads[roads["task"] == "all"].set_index("road")
    for road, wanted in accuracy.items():
        assert whole["accuracy"][road] == pytest.approx(wanted)
        assert summary["metrics"][f"accuracy_{road}"]["mean"] == pytest.approx(wanted)
    for name, pair in (("video_less_text", ("video", "text")), ("random_less_base", ("random", "base"))):
        metric = summary["metrics"][name]
        assert metric["mean"] == pytest.approx(accuracy[pair[0]] - accuracy[pair[1]])
        assert metric["n"] == len(files)
        assert metric["ci_low"] <= metric["mean"] <= metric["ci_high"]
    assert (run / "figures" / "knockout.pdf").exists()


def test_one_head_at_a_time(run: Path, files: dict[str, dict]) -> None:
    heads = table(run, "heads")
    right = [
        one["line"]["measures"] for one in files.values() if one["line"]["measures"]["accuracy@road=base"]
    ]
    assert len(right) >= 3, "the test needs items that are answered right"
    assert sorted(zip(heads["layer"], heads["head"], strict=True)) == list(np.ndindex(4, 4))
    assert heads["change"].is_monotonic_increasing
    for row in heads.to_dict("records"):
        told = f"layer={row['layer']},head={row['head']}"
        own, control = (
            np.mean([one[f"change@path=options_to_last,control={which},{told}"] for one in right])
            for which in ("no", "random")
        )
        assert row["change"] == pytest.approx(own, rel=1e-6, abs=1e-9)
        assert row["control"] == pytest.approx(control, rel=1e-6, abs=1e-9)
        assert row["difference"] == pytest.approx(own - control, rel=1e-6, abs=1e-9)
        assert row["n"] == len(right)
    assert heads["change"].iloc[0] < -5, "some head reads the options"


def test_a_finished_run_is_not_measured_again(run: Path, diagnose: Diagnose) -> None:
    before = sorted(path.read_bytes() for path in run.glob("samples.*.jsonl"))
    again = diagnose(*SMALL, f"out={run}")
    assert again.returncode == 0, again.stdout + again.stderr
    assert sorted(path.read_bytes() for path in run.glob("samples.*.jsonl")) == before


def test_a_window_that_leaves_no_layer_is_refused(diagnose: Diagnose, tmp_path: Path) -> None:
    done = diagnose(*SMALL, f"out={tmp_path}/run", "exp.style=inverse", "exp.window=9")
    assert done.returncode != 0
    assert "No layer lies outside a window of 9" in " ".join((done.stdout + done.stderr).split())
    assert "Traceback" not in done.stderr


def test_an_unknown_path_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="video_to_option"):
        from_mapping(Config, {"paths": ["video_to_optoins"]}, where="exp")


def test_windows_are_a_third_of_the_model_by_default() -> None:
    assert Config().windows(28)[14] == tuple(range(10, 19))
    assert Config().windows(4) == {layer: (layer,) for layer in range(4)}
    assert list(Config(every=3, window=2).windows(8)) == [0, 3, 6]


def test_windows_hold_layers_that_attend_alone() -> None:
    """Of a model whose layers 1 and 3 attend: a window of none of them is left out."""
    assert Config(window=1).windows(4, (1, 3)) == {1: (1,), 3: (3,)}
    assert Config(window=3).windows(4, (1, 3)) == {0: (1,), 1: (1,), 2: (1, 3), 3: (3,)}


def test_the_right_option_and_the_others_are_paths_of_their_own(files: dict[str, dict]) -> None:
    """Blocking either does something else than blocking both, in some item."""
    found = {path: [] for path in PATHS[1:4]}
    for one in files.values():
        for path, logits in found.items():
            logits.append(one["all_layers_logits"][one["roles"].index(path)])
    both, right, others = (np.stack(logits) for logits in found.values())
    assert np.abs(right - both).max() > 1e-3
    assert np.abs(others - both).max() > 1e-3
    assert np.abs(right - others).max() > 1e-3


def test_single_heads_are_drawn_as_a_map(run: Path) -> None:
    from diagnostics.report.knockout import knockout_figure

    heads = table(run, "heads")
    figure = knockout_figure(table(run, "flow"), table(run, "roads"), heads)
    (image,) = [image for axes in figure.axes for image in axes.images]
    drawn = np.asarray(image.get_array())
    assert drawn.shape == (4, 4)
    for row in heads.to_dict("records"):
        assert drawn[row["layer"], row["head"]] == pytest.approx(row["difference"], abs=1e-9)
    framed = [patch for axes in figure.axes for patch in axes.patches if patch.get_gid() == "above"]
    assert len(framed) == int((heads["p_holm"] < 0.05).sum())
    plain = knockout_figure(table(run, "flow"), table(run, "roads"))
    assert not any(axes.images for axes in plain.axes)
