"""What was shown, as the film strip tells it, and what other runs measured of the same frames."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diagnostics.data.items import Evidence, Item, Window
from diagnostics.errors import DamagedRunError, ForeignFolderError
from diagnostics.report.page.beside import beside_of
from diagnostics.report.page.detail import detail_of
from diagnostics.report.page.frames import pictures_of, units_of, windows_of
from diagnostics.report.page.quantised import restored
from diagnostics.store import Record, RunFolder, config_hash, read_records
from diagnostics.store.tensor_parts import Knockout
from diagnostics.video.selection import Slot

from ....finished_runs import attention_tensors, finished_record

NAN = float("nan")
SLOTS = (
    Slot("v", 10, 1.0, 1.0),
    Slot("other", 11, 1.1, 2.0),
    Slot("blank", -1, NAN, 3.0),
    Slot("v", 11, 1.1, 4.0),
)


def item(evidence: Evidence | None) -> Item:
    return Item("a", Path("v"), "v", "Which?", ("one", "two"), "A", evidence=evidence)


def write(folder: Path, experiment: str, *pairs: Any) -> Path:
    config = {"exp": {"name": experiment}, "model": {"name": "tiny"}}
    with RunFolder.open(folder, config, config_hash(config), experiment=experiment) as run:
        for record, tensors in pairs:
            run.append(record) if tensors is None else run.save(record, tensors)
    return folder


@pytest.mark.parametrize("window", [Window(1.05, 1.5), Window(NAN, NAN, 11, 12)], ids=["seconds", "frames"])
def test_evidence_without_tensors_is_that_of_the_items_own_video(window: Window) -> None:
    told = units_of(Record(item_id="a", video_id="v", slots=SLOTS), None, item(Evidence((window,))))
    assert told["kind"] == "frame"
    assert told["evidence"] == [False, False, False, True], "the other video's frame 11 holds none"
    assert told["other"] == [None, "other", "blank", None]
    assert told["seconds"] == [1.0, 1.1, None, 1.1]
    assert told["shown"] == [1.0, 2.0, 3.0, 4.0]
    assert told["frames"] == [[10], [11], [], [11]]


def test_without_tensors_the_number_of_units_says_what_one_is() -> None:
    told = units_of(
        Record(item_id="a", video_id="v", slots=SLOTS[:3], n_units=2),
        None,
        item(Evidence((Window(0.5, 1.05),))),
    )
    assert (told["kind"], told["frames"]) == ("unit", [[10, 11], []])
    assert (told["evidence"], told["other"]) == ([True, False], ["other", "blank"])
    for n_units in (3, 4, None):  # as many as frames, tiles of them, or unknown
        record = Record(item_id="a", video_id="v", slots=SLOTS[:3], n_units=n_units)
        assert [units_of(record, None, None)[name] for name in ("kind", "frames")] == [
            "frame",
            [[10], [11], []],
        ]
    five = Record(item_id="a", video_id="v", slots=SLOTS + SLOTS[:1], n_units=4)  # two and two make three
    assert len(units_of(five, None, None)["frames"]) == 5


def test_without_words_or_local_evidence_nothing_is_evidence() -> None:
    record = Record(item_id="a", video_id="v", slots=SLOTS)
    for one in (None, item(None), item(Evidence((), "global"))):
        assert units_of(record, None, one)["evidence"] == [False] * 4
    assert windows_of(item(Evidence((Window(1.0, 2.0), Window(NAN, NAN, 3, 4))))) == [[1.0, 2.0]]


def test_a_unit_is_shown_by_its_picture_of_evidence(tmp_path: Path) -> None:
    """Frame 4 is evidence: the first slot of unit 2 in `attention_tensors`, here the second one."""
    tensors = attention_tensors("a", 0)
    tensors = replace(tensors, units=replace(tensors.units, evidence=tensors.units.frame_index == 5))
    record = finished_record("a", "v", tensors)
    run = write(tmp_path / "run", "attention_drift", (record, tensors))
    with RunFolder.open(
        tmp_path / "pictures", {"exp": {}}, config_hash({"exp": {}}), experiment="x"
    ) as folder:
        folder.save_thumbnails("a", record.condition_id, np.zeros((4, 8, 8, 3), np.uint8), [2, 3, 4, 5])
    (tmp_path / "pictures" / "thumbnails").rename(run / "thumbnails")
    assert [(one["unit"], one["place"]) for one in pictures_of(run, record, tensors, None)] == [
        (1, 0),
        (2, 1),
    ]
    next((run / "thumbnails").rglob("00005.jpg")).write_bytes(b"no picture")
    with pytest.raises(DamagedRunError, match="no picture"):
        pictures_of(run, record, tensors, None)


@pytest.fixture(scope="module")
def drift_and_knockout(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two items; the knockout run showed the second one other frames."""
    folder = tmp_path_factory.mktemp("beside")
    looks = {name: attention_tensors(name, seed) for seed, name in enumerate(("a", "b"))}
    drift = [(finished_record(name, "v", tensors, target="A"), tensors) for name, tensors in looks.items()]
    effects = []
    for (record, tensors), n_slots in zip(drift, (11, 10), strict=True):
        layers = len(tensors.layer)
        blocked = replace(
            tensors,
            attention=None,
            similarity=None,
            control=None,
            role=("video_to_last",),
            option=("A", "B"),
            definitions={"roads": ["base"]},
            knockout=Knockout(
                window_logits=np.tile(np.array([0.0, 1.0], np.float32), (layers, 1, 1)),
                all_layers_logits=np.array([[0.0, 1.0]], np.float32),
                road_logits=np.array([[2.0, 0.0]], np.float32),
            ),
        )
        other = replace(record, slots=(*record.slots[: n_slots - 1], Slot("v", 99, 9.0, 9.0)))
        effects.append((record if n_slots == 11 else other, blocked))
    effects[1] = (effects[1][0], None)
    return write(folder / "drift", "attention_drift", *drift), write(
        folder / "knockout", "knockout", *effects
    )


def test_effects_of_another_run_stand_beside_the_attention(drift_and_knockout: tuple[Path, Path]) -> None:
    drift, knockout = drift_and_knockout
    (other,) = beside_of([str(knockout)])
    records = [replace(record) for record in read_records(drift)]
    assert other.words == "knockout of tiny"
    assert other.told(records).endswith("of 1 of 2 measurements, shown the same frames")
    panels = [detail_of(drift, record, None, beside=[other])["panels"] for record in records]
    assert [panel["title"] for panel in panels[0]] == ["Knockout of paths (knockout of tiny)"]
    base, blocked = 1 / (1 + np.exp(-2.0)), 1 / (1 + np.exp(1.0))
    np.testing.assert_allclose(restored(panels[0][0]["values"]), blocked - base, atol=0.01)
    assert panels[1] == [], "the other item was shown other frames"


def test_attention_of_another_run_stands_above_the_effects(drift_and_knockout: tuple[Path, Path]) -> None:
    drift, knockout = drift_and_knockout
    record = next(record for record in read_records(knockout) if record.item_id == "a")
    alone = detail_of(knockout, record, None)
    assert "attention" not in alone
    told = detail_of(knockout, record, None, beside=beside_of([str(drift)]))
    assert told["attention"]["of"] == "attention drift of tiny"
    assert told["share"] == detail_of(drift, read_records(drift)[0], None)["share"]
    assert told["panels"] == alone["panels"]


def test_a_run_without_tensors_shows_what_others_measured_under_their_names(
    drift_and_knockout: tuple[Path, Path], tmp_path: Path
) -> None:
    drift, knockout = drift_and_knockout
    record = replace(next(iter(read_records(drift))), tensor_file=None, axes={})
    bench = write(tmp_path / "benchmark", "benchmark", (record, None))
    told = detail_of(bench, record, None, beside=beside_of([str(knockout), str(drift)]))
    assert [panel["title"] for panel in told["panels"]] == ["Knockout of paths (knockout of tiny)"]
    assert told["attention"]["of"] == "attention drift of tiny"
    assert told["units"]["kind"] == "unit", "another run says what one is"
    assert not {"panels", "attention"} & set(detail_of(bench, record, None))


def test_a_folder_without_a_run_is_not_shown_beside(tmp_path: Path) -> None:
    with pytest.raises(ForeignFolderError):
        beside_of([str(tmp_path)])
