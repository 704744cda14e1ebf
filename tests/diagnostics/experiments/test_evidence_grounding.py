"""Evidence grounding through the command: what each setting shows, the chain and its levels, bad input."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from diagnostics.data.items import Item
from diagnostics.store.summary import read_summary

from .conftest import Diagnose
from .odd import write_odd
from .told import clock, frames, lines_of, mean, shows_evidence, sources, table, under

SMALL = ("+exp=evidence_grounding", "data.n_videos=5", "data.questions=4", "exp.budget=13", "exp.swapped=3",
         "exp.oracle_images=4")  # fmt: skip
SETTINGS = ("text", "blank", "uniform", "swapped", "oracle_matched", "oracle_images")
CHAIN = ("chance", "text", "uniform", "swapped", "oracle_matched")
STEPS = ("language prior", "video", "sampling", "distraction and length", "interpretation")


@pytest.fixture(scope="module")
def items(cache: Path) -> dict[str, Item]:
    from diagnostics.data.minihorizon import Config, load

    found = load(Config(split="test", n_videos=5, questions=4, cache=str(cache))).items
    return {item.id: item for item in found}


@pytest.fixture(scope="module")
def run(diagnose: Diagnose, items: dict[str, Item], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("grounding") / "run"
    done = diagnose(*SMALL, f"out={folder}")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def lines(run: Path) -> list[dict]:
    return lines_of(run)


def test_every_item_is_asked_once_in_every_setting(lines, items):
    pairs = Counter((line["item_id"], line["condition"]["shown"]) for line in lines)
    assert pairs == {(item, setting): 1 for item in items for setting in SETTINGS}
    assert all(line["error"] is None for line in lines)


def test_settings_show_what_they_are_called(lines, items):
    for name, item in items.items():
        shown = {setting: under(lines, shown=setting)[name] for setting in SETTINGS}
        uniform = shown["uniform"]
        assert frames(uniform) == np.rint(np.linspace(0, frames(uniform)[-1], 13)).astype(int).tolist()
        assert shown["text"]["slots"] == []
        assert shown["text"]["n_visual_tokens"] in (None, 0)
        assert sources(shown["blank"]) == {"blank"}
        assert clock(shown["blank"]) == clock(uniform)
        matched = shown["oracle_matched"]
        assert shows_evidence(matched, item).all(), "the oracle shows nothing else"
        assert clock(matched) == clock(uniform), "and is told uniform's times"
        times = Counter(frames(matched))
        assert max(times.values()) - min(times.values()) <= 1, "each frame as often as any other"
        assert frames(matched) == sorted(frames(matched))
        for other in ("blank", "oracle_matched"):
            assert shown[other]["n_visual_tokens"] == uniform["n_visual_tokens"]
            assert shown[other]["n_prompt_tokens"] == uniform["n_prompt_tokens"]
        swapped = shown["swapped"]
        assert len(swapped["slots"]) == 13
        assert swapped["n_visual_tokens"] == uniform["n_visual_tokens"]
        there = sum(
            end - first for first, end in {(w.start_frame, w.end_frame) for w in item.evidence.windows}
        )
        own = shows_evidence(uniform, item).sum()
        assert min(3, there) <= shows_evidence(swapped, item).sum() <= own + min(3, there)
        assert clock(swapped) == [slot["true_seconds"] for slot in swapped["slots"]], (
            "evidence at its own times"
        )
        exchanged = set(frames(swapped)) - set(frames(uniform))
        assert len(set(frames(uniform)) - set(frames(swapped))) == len(exchanged) <= 3
        images = shown["oracle_images"]
        assert shows_evidence(images, item).all()
        assert len(images["slots"]) == min(4, there), "variable in number, as in the paper"
        assert not any(warning.startswith("fewer_frames") for warning in images["warnings"])


def test_the_chain_sums_to_one_less_chance_on_the_same_items(run, lines, items):
    steps, levels = table(run, "chain"), table(run, "levels")
    groups = {("all", "all"): set(items)}
    for item in items.values():
        groups.setdefault(("task", item.task), set()).add(item.id)
        groups.setdefault(("family", item.task_family), set()).add(item.id)
    assert set(zip(steps["of"], steps["group"], strict=True)) == set(groups)
    for (kind, group), ids in groups.items():
        some = [line for line in lines if line["item_id"] in ids]
        accuracy = {"chance": float(np.mean([1 / len(items[name].options) for name in ids]))}
        accuracy |= {setting: mean(under(some, shown=setting)) for setting in SETTINGS}
        here = steps[(steps["of"] == kind) & (steps["group"] == group)]
        assert tuple(here["step"]) == STEPS
        assert here["difference"].sum() == pytest.approx(1 - accuracy["chance"], abs=1e-12)
        expected = np.diff([*(accuracy[name] for name in CHAIN), 1.0])
        np.testing.assert_allclose(here["difference"], expected, atol=1e-12)
        assert (here["n"] == len(ids)).all()
        level = levels[(levels["of"] == kind) & (levels["group"] == group)].set_index("shown")
        for name, value in accuracy.items():
            assert level.loc[name, "accuracy"] == pytest.approx(value)
            assert level.loc[name, "n"] == len(ids)
    overall = steps[steps["of"] == "all"]
    assert (
        (overall["ci_low"] <= overall["difference"]) & (overall["difference"] <= overall["ci_high"])
    ).all()
    summary = read_summary(run)
    assert summary.metrics["step_sampling"].mean == pytest.approx(overall["difference"].iloc[2])
    assert summary.metrics["accuracy_oracle_images"].mean == pytest.approx(
        mean(under(lines, shown="oracle_images"))
    )


def test_differences_are_paired_with_uniform(run, lines):
    rows = table(run, "differences")
    rows = rows[rows["task"] == "all"].set_index("shown")
    uniform = under(lines, shown="uniform")
    for setting in set(SETTINGS) - {"uniform"}:
        other = under(lines, shown=setting)
        gained = sum(other[name]["correct"] and not uniform[name]["correct"] for name in uniform)
        lost = sum(uniform[name]["correct"] and not other[name]["correct"] for name in uniform)
        assert (rows.loc[setting, "gained"], rows.loc[setting, "lost"]) == (gained, lost)
        assert rows.loc[setting, "difference"] == pytest.approx((gained - lost) / len(uniform))


def test_the_same_command_again_measures_nothing(run, diagnose, lines):
    before = [path.read_bytes() for path in sorted(run.glob("samples.*.jsonl"))]
    tables = {path.name: path.read_bytes() for path in (run / "tables").iterdir()}
    done = diagnose(*SMALL, f"out={run}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [path.read_bytes() for path in sorted(run.glob("samples.*.jsonl"))] == before
    assert {path.name: path.read_bytes() for path in (run / "tables").iterdir()} == tables
    log = (run / "run.0.log").read_text()
    assert log.count("done after") == 2
    assert log.count("loading tiny") == 1


def test_a_misspelt_key_names_the_near_one(diagnose, tmp_path):
    done = diagnose("+exp=evidence_grounding", "exp.swaped=3", f"out={tmp_path / 'run'}")
    assert done.returncode == 2
    assert "exp.swaped" in done.stderr
    assert "'swapped'" in done.stderr


def test_the_papers_settings_hold_where_the_data_is_not_minihorizon(diagnose, tmp_path):
    (tmp_path / "mlvbench_test.jsonl").touch()
    done = diagnose("+exp=evidence_grounding", "data=medhorizon", f"data.root={tmp_path}", "--cfg", "job",
                    "--resolve")  # fmt: skip
    assert done.returncode == 0, done.stderr
    exp = done.stdout[done.stdout.index("\nexp:") :]
    assert "budget: 64" in exp
    assert "oracle_images: 32" in exp


def test_bad_input_is_named_and_counted_and_costs_nobody_else(diagnose, tmp_path):
    folder = tmp_path / "run"
    done = diagnose(
        "+exp=evidence_grounding", *write_odd(tmp_path), "exp.budget=15", "exp.swapped=3", f"out={folder}"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    left_out = table(folder, "left_out").set_index("item")["reason"].to_dict()
    assert left_out == {
        "global": "no local evidence",
        "nothing": "no local evidence",
        "open": "no options or no answer",
        "unanswered": "no options or no answer",
    }
    assert "2 (no local evidence), 2 (no options or no answer)" in done.stdout
    lines = lines_of(folder)
    errors = {
        (line["item_id"], line["condition"].get("shown")): line["error"]["type"]
        for line in lines
        if line["error"]
    }
    between = {
        ("between frames", s): "NoEvidenceError" for s in ("swapped", "oracle_matched", "oracle_images")
    }
    assert errors == between | {("beyond", setting): "EvidenceOutsideVideoError" for setting in SETTINGS}
    short = under(lines, shown="uniform")["short"]
    assert frames(short) == list(range(12))
    assert any(w.startswith("fewer_frames: 12") for w in short["warnings"])
    matched = under(lines, shown="oracle_matched")
    assert frames(matched["short"]) == [4] * 6 + [5] * 6
    assert matched["short"]["n_visual_tokens"] == short["n_visual_tokens"]
    assert frames(matched["one frame"]) == [0]
    steps = table(folder, "chain")
    overall = steps[steps["of"] == "all"]
    assert overall["difference"].sum() == pytest.approx(1 - 0.25)
    assert (overall["n"] == 5).all(), "good, good foil, short, one frame, all of it"
