"""A run written through the store, read back and compared with plain arithmetic on its arrays."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from diagnostics.data.items import Evidence, Item, Window
from diagnostics.errors import (
    DamagedRunError,
    ForeignFolderError,
    IncompleteRunError,
    RunError,
)
from diagnostics.experiments.definitions import Definition
from diagnostics.report.from_run import headline_definition, item_drift, load_drift
from diagnostics.report.item_pictures import attended_frames, draw_item, item_attention
from diagnostics.store import read_records
from diagnostics.store.tensors import read_tensors, write_tensors

QUESTION = Definition("question")


def shares(mass: np.ndarray) -> np.ndarray:
    return mass / mass.sum()


def shifted_preferences(tensors) -> np.ndarray:
    """Attention-weighted minus plain mean cosine, attention moved by every step along the non-key units."""
    attention = tensors.attention.token_mass[:, 0].astype(float).mean(axis=0)
    cosine = tensors.similarity.patch_to_keyframe.astype(float)
    known = np.flatnonzero(np.isfinite(cosine))
    weight, value = attention[known].reshape(-1, 6), cosine[known].reshape(-1, 6)
    shifts = [np.roll(weight, step, axis=0) for step in range(1, len(weight))]
    return np.array([(w * value).sum() / w.sum() - value.mean() for w in shifts])


def test_curves_are_those_of_the_arrays_written(run_folder, metrics):
    path, written = run_folder
    run = load_drift(path)
    assert (run.name, run.n_items, run.n_videos) == ("tiny-minihorizon-1234", 3, 2)
    assert run.feature == "projector"
    assert run.n_units.tolist() == [6, 8, 6]
    for row, tensors in enumerate(written):
        heads = tensors.attention.unit_mass[:, :, 0].reshape(6, -1).astype(float)
        curves = [np.cumsum(np.sort(shares(head))[::-1]) for head in heads]
        units = heads.shape[1]
        at = np.linspace(0, 1, units + 1)
        expected = np.mean([np.interp(run.unit_grid, at, [0, *curve]) for curve in curves], axis=0)
        np.testing.assert_allclose(run.cumulative[row], expected, atol=1e-12)
        attention = tensors.attention.token_mass[:, 0].mean(axis=0)
        cosine = tensors.similarity.patch_to_keyframe
        known = np.flatnonzero(np.isfinite(cosine))
        best = known[np.argsort(-attention[known], kind="stable")]
        for percent in (1, 10, 37, 100):
            taken = int(np.ceil(round(percent / 100 * len(best), 9)))
            expected_mean = cosine[best[:taken]].mean()
            assert run.redundancy[row, percent - 1] == pytest.approx(expected_mean, abs=1e-6)
        blank = np.mean(
            [np.cumsum(np.sort(shares(h))[::-1]) for h in tensors.control.unit_mass[:, :, 0].reshape(6, -1)],
            axis=0,
        )
        np.testing.assert_allclose(run.control[row], np.interp(run.unit_grid, at, [0, *blank]), atol=1e-6)
    assert run.unit_fraction[90] == metrics["unit_fraction_90"]
    assert run.evidence.max() == pytest.approx(1)
    nulls = [shifted_preferences(tensors) for tensors in written]
    centre = np.mean([null.mean() for null in nulls])
    reach = 1.96 * np.sqrt(sum(null.var() for null in nulls)) / len(nulls)
    assert run.preference_null == pytest.approx((centre - reach, centre + reach), abs=1e-4)


def test_pooled_curves_rank_the_mean_over_heads(run_folder, metrics):
    path, written = run_folder
    run = load_drift(path, name="other", pooling="pooled")
    pooled = shares(written[0].attention.unit_mass[:, :, 0].astype(float).mean(axis=(0, 1)))
    np.testing.assert_allclose(run.cumulative[0, -1], 1.0)
    np.testing.assert_allclose(
        np.interp(np.arange(7) / 6, run.unit_grid, run.cumulative[0]),
        [0, *np.cumsum(np.sort(pooled)[::-1])],
        atol=0.01,
    )
    assert run.name == "other"
    assert run.unit_fraction[90] == metrics["unit_fraction_90_pooled"]
    assert (load_drift(path).cumulative[0] >= run.cumulative[0] - 1e-9).all(), "pooling makes it diffuse"


def test_another_definition_takes_its_rows_and_leaves_the_headlines_numbers_out(run_folder):
    path, written = run_folder
    run = load_drift(path, pooling="pooled", definition=Definition("last", layers="early"))
    first_layer = written[2].attention.unit_mass[0, :, 1].astype(float)
    best = np.sort(shares(first_layer.mean(axis=0)))[::-1]
    assert run.cumulative[2, 50] == pytest.approx(best[:3].sum())
    assert all(metric.mean is None for metric in run.unit_fraction.values())


def test_mean_pooling_divides_by_the_tokens_of_a_unit(run_folder):
    _, written = run_folder
    tokens = written[0].tokens
    # Unit 0 loses half its tokens, so by their mean it counts twice as much.
    kept = ~((tokens.unit_index == 0) & (tokens.row == 1))
    fewer = replace(
        written[0],
        tokens=type(tokens)(*(getattr(tokens, n)[kept] for n in ("position", "unit_index", "row", "col"))),
        similarity=None,
    )
    summed = item_drift(fewer, "v", QUESTION, "pooled").unit_share
    meant = item_drift(fewer, "v", replace(QUESTION, pooling="mean"), "pooled").unit_share
    weights = np.where(np.arange(6) == 0, 2.0, 1.0)
    np.testing.assert_allclose(meant, shares(summed * weights))


def test_what_the_files_do_not_hold_is_refused(run_folder):
    _, written = run_folder
    with pytest.raises(RunError, match=r"rows of the role 'options'.*question, last"):
        item_drift(written[0], "v", Definition("options"), "pooled")
    with pytest.raises(RunError, match="value-weighted"):
        item_drift(written[0], "v", Definition("last", weighting="value"), "pooled")
    one_layer = replace(written[0].attention, unit_mass=written[0].attention.unit_mass[:1])
    with pytest.raises(RunError, match="takes no heads: of 1 captured layers"):
        item_drift(replace(written[0], attention=one_layer), "v", Definition("last", layers="late"), "pooled")
    with pytest.raises(RunError, match="no attention"):
        item_drift(replace(written[0], attention=None), "v", QUESTION, "pooled")
    with pytest.raises(RunError, match="does not say by which role"):
        headline_definition(replace(written[0], definitions={}))


def test_a_folder_that_is_no_run_is_named(tmp_path, run_folder):
    with pytest.raises(ForeignFolderError, match="no such folder"):
        load_drift(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ForeignFolderError, match="holds no run"):
        load_drift(tmp_path / "empty")
    path, _ = run_folder
    summary = path / "summary.json"
    summary.write_text("{")
    with pytest.raises(DamagedRunError):
        load_drift(path)
    summary.unlink()
    with pytest.raises(IncompleteRunError, match="not finished"):
        load_drift(path)


def test_missing_tensors_and_conditions_are_refused(run_folder):
    path, _ = run_folder
    with pytest.raises(IncompleteRunError, match="condition 'x'"):
        load_drift(path, condition="x")
    first = next(record for record in read_records(path) if record.item_id == "a")
    (path / first.tensor_file).unlink()
    with pytest.raises(IncompleteRunError, match="tensor file is missing"):
        load_drift(path)


def test_one_items_attention_and_its_pictures(run_folder):
    path, written = run_folder
    record = next(record for record in read_records(path) if record.item_id == "b/ä")
    item = Item("b/ä", Path("v0.mp4"), "v0.mp4", "Why?", evidence=Evidence((Window(6.0, 7.5),)))
    tensors = written[1]
    mass = tensors.attention.unit_mass[:, :, 0].astype(float)
    found = item_attention(item, record, tensors, QUESTION)
    np.testing.assert_allclose(found.unit_share, shares(mass.mean(axis=(0, 1))))
    each = np.array([shares(head) for head in mass.reshape(6, -1)])
    np.testing.assert_allclose([found.head_low, found.head_high], np.quantile(each, [0.25, 0.75], axis=0))
    assert found.evidence_windows == [(6.0, 7.5)]

    frames = attended_frames(path, record, tensors, QUESTION)
    most = int(np.argmax(found.unit_share))
    # The fixture saved the most attended unit's first picture, of one colour, and one other.
    assert frames.thumbnails.shape[1:] == (24, 36, 3)
    assert np.abs(frames.thumbnails[0].astype(int) - 80).max() <= 2
    assert frames.shares[0] == found.unit_share[most]
    assert frames.seconds[0] == tensors.units.true_seconds[most, 0]
    attention = tensors.attention.token_mass[:, 0].astype(float).mean(axis=0)
    inside = tensors.tokens.unit_index == most
    np.testing.assert_allclose(frames.heat[0], (attention / attention.sum())[inside].reshape(2, 3))

    drawn = draw_item(path, item, record)
    assert [p.suffix for p in drawn] == [".png", ".pdf"] * 2
    assert all(p.parent == path / "figures" / "items" for p in drawn)
    assert Image.open(drawn[0]).size[0] == 1400


def test_no_thumbnails_no_sheet_and_other_frames_are_damage(run_folder):
    path, written = run_folder
    record = next(record for record in read_records(path) if record.item_id == "a")
    for thumbnail in (path / "thumbnails").rglob("*.jpg"):
        thumbnail.unlink()
    assert attended_frames(path, record, written[0], QUESTION) is None
    with pytest.raises(DamagedRunError, match="different frames"):
        attended_frames(path, replace_slots(record), written[0], QUESTION)


def replace_slots(record):
    return replace(record, slots=record.slots[:-1])


def test_a_unit_is_shown_by_its_evidence(run_folder):
    path, written = run_folder
    record = next(record for record in read_records(path) if record.item_id == "a")
    tensors = written[0]
    most = int(np.argmax(tensors.attention.unit_mass[:, :, 0].mean(axis=(0, 1))))
    evidence = np.zeros_like(tensors.units.evidence)
    evidence[most, 1] = True
    shown = replace(tensors, units=replace(tensors.units, evidence=evidence))
    folder = next((path / "thumbnails").glob("a-*"))
    Image.new("RGB", (36, 24), (0, 0, 200)).save(folder / f"{2 * most + 1:05d}.jpg")
    frames = attended_frames(path, record, shown, QUESTION)
    assert frames.thumbnails[0][..., 2].mean() > 150
    assert frames.seconds[0] == tensors.units.true_seconds[most, 1]
    assert frames.evidence.tolist()[0]


def test_a_tensor_file_of_several_conditions_needs_a_choice(run_folder, make_second_condition):
    path, identifier = make_second_condition(run_folder)
    with pytest.raises(RunError, match="several conditions"):
        load_drift(path)
    assert load_drift(path, condition=identifier).n_items == 1


@pytest.fixture
def make_second_condition():
    """Adds item `a` once more under another condition."""

    def build(run_folder) -> tuple[Path, str]:
        path, written = run_folder
        record = next(r for r in read_records(path) if r.item_id == "a")
        other = replace(record, condition={"budget": 4}, tensor_file="tensors/second.h5")
        write_tensors(path / other.tensor_file, replace(written[0], condition={"budget": 4}))
        assert read_tensors(path / other.tensor_file).condition == {"budget": 4}
        from diagnostics.store import to_json

        with (path / "samples.0.jsonl").open("a") as lines:
            lines.write(to_json(other) + "\n")
        assert json.loads(to_json(other))["condition_id"] == other.condition_id
        return path, other.condition_id

    return build
