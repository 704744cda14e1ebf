"""What interventions and the lens did, as the page's maps, against numbers reckoned by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

from diagnostics.report.page import detail as details
from diagnostics.report.page.detail import detail_of
from diagnostics.report.page.panels import panels_of
from diagnostics.report.page.quantised import restored
from diagnostics.store import PairTensors, Record, read_records
from diagnostics.store.tensor_parts import Knockout, Lens, Patching, UnitMaps

from ....finished_runs import attention_tensors, write_run

RECORD = Record(item_id="a", video_id="v", target="B")


def tensors(**parts: Any) -> PairTensors:
    """Three units, two layers, options A and B."""
    whole = attention_tensors("a", 0, units=3)
    return replace(
        whole, attention=None, control=None, similarity=None, option=("A", "B"), definitions={}, **parts
    )


def test_patching_is_the_share_restored_by_unit_and_by_set() -> None:
    logits = np.zeros((2, 4, 2), np.float32)
    # Logit difference of B: -1 in the corrupt run, 3 in the clean one; a patch gives what stands here.
    logits[..., 1] = [[3, -1, 1, 3], [-1, -1, 7, -2]]
    made = Patching(
        logits, np.array([0, 3], np.float32), np.array([0, -1], np.float32), np.zeros((2, 4), np.float32)
    )
    held = tensors(patching=made, role=("unit:2", "unit:0", "last", "evidence"))
    by_unit, by_set = panels_of(RECORD, held, {})
    assert (by_unit["axis"], by_unit["rows"]) == ("unit", ["layer 0", "layer 1"])
    expected = np.array([[0.0, np.nan, 1.0], [0.0, np.nan, 0.0]])
    np.testing.assert_allclose(restored(by_unit["values"]), expected, atol=0.01)
    assert (by_set["axis"], by_set["rows"]) == ("layer", ["last", "evidence"])
    np.testing.assert_allclose(restored(by_set["values"]), [[0.5, 2.0], [1.0, -0.25]], atol=0.01)


def test_nothing_to_restore_is_no_map() -> None:
    same = np.array([0, 1], np.float32)
    made = Patching(np.zeros((2, 1, 2), np.float32), same, same, np.zeros((2, 1), np.float32))
    assert panels_of(RECORD, tensors(patching=made, role=("unit:0",)), {"least": 0.5}) == []


def test_knockout_is_the_change_of_the_right_options_probability() -> None:
    rng = np.random.default_rng(0)
    window, roads = rng.normal(size=(2, 1, 2)), rng.normal(size=(3, 2))
    made = Knockout(window.astype(np.float32), np.zeros((1, 2), np.float32), roads.astype(np.float32))
    held = replace(
        tensors(knockout=made, role=("video_to_last:random",)),
        definitions={"roads": ["base", "text", "video"]},
    )
    paths, whole = panels_of(RECORD, held, {})
    base = softmax(roads[0])[1]
    assert paths["rows"] == ["video to last, random"]
    change = softmax(window[:, 0], axis=-1)[:, 1] - base
    np.testing.assert_allclose(restored(paths["values"])[0], change, atol=0.005)
    assert (whole["rows"], whole["columns"]) == (["text", "video"], ["all layers"])
    np.testing.assert_allclose(
        restored(whole["values"])[:, 0], softmax(roads[1:], axis=-1)[:, 1] - base, atol=0.005
    )


def test_unit_maps_are_each_to_their_own_largest_and_orders_without_scores_are_left_out() -> None:
    scores = np.array([[2, 4, 1], [np.nan] * 3, [-1, 0.5, 0]], np.float32)
    nothing = np.zeros((3, 1), np.float32)
    made = UnitMaps(scores, np.zeros(1, np.int32), nothing, nothing)
    (told,) = panels_of(RECORD, tensors(unit_maps=made, role=("attention", "random", "occlusion")), {})
    assert told["rows"] == ["attention", "occlusion"]
    np.testing.assert_allclose(restored(told["values"]), [[0.5, 1, 0.25], [-1, 0.5, 0]], atol=0.005)


def test_the_lens_is_shares_among_the_options() -> None:
    letters = np.array([[0, 0], [0, np.log(3)]], np.float32)
    share = np.array([[0.1, 0.2, 0.3], [0.9, 0.5, 0.0]], np.float32)
    made = Lens(letters, np.zeros((2, 3, 2), np.float32), word_share=share)
    words, told = panels_of(RECORD, tensors(lens=made), {})
    np.testing.assert_allclose(restored(words["values"]), share, atol=0.005)
    assert told["rows"] == ["A", "B (right)"]
    np.testing.assert_allclose(restored(told["values"]), [[0.5, 0.25], [0.5, 0.75]], atol=0.005)


def test_without_a_right_option_there_is_no_effect() -> None:
    letters = Lens(np.zeros((2, 2), np.float32), np.zeros((2, 3, 2), np.float32))
    assert panels_of(replace(RECORD, target=None), tensors(lens=letters), {}) == []


def test_what_is_too_large_is_left_to_the_tensor_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(tmp_path / "run", [{"gini": 0.5}])
    (record,) = read_records(run)
    whole = detail_of(run, record, None)
    # 2 layers of 3 heads see 6 units; 2 layers see 36 tokens.
    assert whole["attention"]["heads"]["shape"] == [2, 3, 6]
    assert whole["patches"]["layers"]["shape"] == [2, 36]
    monkeypatch.setattr(details, "HEADS_AT_MOST", 35)
    monkeypatch.setattr(details, "LAYER_PATCHES_AT_MOST", 71)
    small = detail_of(run, record, None)
    assert small["attention"]["heads"] is None
    assert small["patches"]["layers"] is None
    assert small["patches"]["heat"] == whole["patches"]["heat"]
