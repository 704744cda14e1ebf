"""Planning, reading ahead, and each pair's own pictures out of what was read for all."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import numpy as np
import psutil
import pytest
from PIL import Image

from diagnostics.data.items import Evidence, Item, Window
from diagnostics.errors import ConfigError, DamagedVideoError, NoFoilError, ReaderTimeoutError
from diagnostics.experiments import read_ahead
from diagnostics.experiments.context import Context
from diagnostics.experiments.pairs import Measured, Pair, measure_pairs
from diagnostics.experiments.showing import Library, Shown, Source, nothing
from diagnostics.models import loading
from diagnostics.video.perturb import blank
from diagnostics.video.reading import FrameReader
from diagnostics.video.selection import Selection, Slot

from ..video.conftest import Clips
from .engine import PretendReader, item_of, open_context, shown_by_frames, slots_of, walked


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Clips:
    return Clips(tmp_path_factory.mktemp("clips"))


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Context]:
    with open_context(tmp_path / "run", ()) as opened:
        yield opened


def decoded(path: Path) -> list[np.ndarray]:
    """Every picture, by PyAV alone, in order."""
    with av.open(str(path)) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


class Counting:
    """A real reader that counts the frames it is asked for."""

    def __init__(self, plain: FrameReader) -> None:
        self._plain, self.reader, self.max_side = plain, plain.reader, plain.max_side
        self.index = plain.index
        self.asked: list[tuple[Path, list[int]]] = []

    def read(self, path: Path, indices: Any, *, keep: bool = True) -> np.ndarray:
        self.asked.append((path, np.asarray(indices).tolist()))
        return self._plain.read(path, indices)


FRAMES = ([3, 9, 60, 150], [150, 60, 9, 3], [9, 9, 10, 199], [0, 1, 2, 3], [60])


def pairs_of(item: Item, frames: Any = FRAMES) -> list[Pair]:
    return [Pair(item, {"frames": list(some)}) for some in frames]


@pytest.mark.parametrize("most_bytes", [4 << 30, 12 * 192 * 96 * 3, 1])
def test_each_pair_gets_the_frames_that_it_would_get_alone(
    context: Context, clips: Clips, monkeypatch: pytest.MonkeyPatch, most_bytes: int
) -> None:
    monkeypatch.setattr(read_ahead, "_MOST_BYTES", most_bytes)
    truth = decoded(clips["h264.mp4"])
    item = item_of(clips["h264.mp4"])
    with FrameReader() as plain:
        reader = Counting(plain)
        got = list(walked(context, reader, pairs_of(item), shown_by_frames))
    assert [pair.condition["frames"] for pair, _ in got] == list(map(list, FRAMES)), "in order"
    for pair, source in got:
        assert isinstance(source, Source), source
        expected = np.stack([truth[frame] for frame in pair.condition["frames"]])
        assert np.array_equal(source.frames.pixels, expected)
        assert source.native_size == (96, 192)
    union = sorted({frame for frames in FRAMES for frame in frames})
    read = [frames for _, frames in reader.asked]
    if most_bytes > 1 << 30:
        assert read == [union], "each frame once, in order"
    else:
        assert len(read) > 1
        assert all(frames == sorted(set(frames)) for frames in read)


def test_a_long_reading_is_asked_for_in_parts(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader's time limit is for one request."""
    monkeypatch.setattr(read_ahead, "MOST_FRAMES", 7)
    reader = PretendReader()
    frames = list(range(0, 100, 5))
    ((_, source),) = walked(context, reader, pairs_of(item_of(Path("v")), [frames]), shown_by_frames)
    assert isinstance(source, Source)
    assert [some for _, some in reader.asked] == [frames[:7], frames[7:14], frames[14:]]
    assert source.frames.pixels[:, 0, 0, 0].tolist() == frames


def test_foils_blanks_jpeg_and_nothing_are_what_they_say(context: Context, clips: Clips) -> None:
    own = clips["h264.mp4"]
    odd = Clips.encode(clips.folder / "odd.mp4", range(40), size=(128, 128))
    item = item_of(own)

    def show(pair: Pair, library: Library) -> Shown:
        kind = pair.condition["kind"]
        plain = replace(library.uniform(item, 3), slots=slots_of(own.name, [5, 6, 7]))
        if kind == "foil":
            slots = (*plain.slots[:2], Slot("odd", 30, 1.0, 0.7), Slot("blank", -1, float("nan"), 0.8))
            return Shown(item, replace(plain, slots=slots), sources={"odd": odd}, foil="B")
        if kind == "blank":
            return Shown(item, blank(plain))
        if kind == "nothing":
            return Shown(item, nothing(plain), form="nothing")
        return Shown(item, plain, jpeg=40, notices=("told: so",))

    kinds = ("foil", "blank", "nothing", "jpeg")
    with FrameReader() as reader:
        pairs = [Pair(item, {"kind": kind}) for kind in kinds]
        got = dict(zip(kinds, (source for _, source in walked(context, reader, pairs, show)), strict=True))
        ((_, blank_alone),) = walked(context, reader, [pairs[1]], show)
    truth, foreign = decoded(own), decoded(odd)
    foil = got["foil"]
    assert isinstance(foil, Source)
    assert np.array_equal(foil.frames.pixels[:2], np.stack(truth[5:7]))
    resized = np.asarray(Image.fromarray(foreign[30]).resize((192, 96)))
    assert np.array_equal(foil.frames.pixels[2], resized)
    assert (foil.frames.pixels[3] == 128).all()
    assert foil.notices == ("resized_foil: 1 pictures of another size made equal",)
    for grey in (got["blank"], blank_alone):
        assert isinstance(grey, Source)
        assert grey.frames.pixels.shape == (3, 96, 192, 3)
        assert (grey.frames.pixels == 128).all()
    assert isinstance(got["nothing"], Source)
    assert got["nothing"].frames.pixels.shape == (0, 96, 192, 3)
    again = got["jpeg"]
    assert isinstance(again, Source)
    assert again.notices == ("told: so",)
    buffer = io.BytesIO()
    Image.fromarray(truth[6]).save(buffer, format="JPEG", quality=40)
    assert np.array_equal(again.frames.pixels[1], np.asarray(Image.open(buffer)))
    assert not np.array_equal(again.frames.pixels[1], truth[6])


def test_smaller_pictures_are_smaller_for_blanks_too(tmp_path: Path, clips: Clips) -> None:
    item = item_of(clips["h264.mp4"])

    def show(pair: Pair, library: Library) -> Shown:
        plain = library.uniform(item, 2)
        return Shown(item, blank(plain) if pair.condition["blank"] else plain)

    with open_context(tmp_path / "run", (), max_side=50) as small, FrameReader(max_side=50) as reader:
        for pairs in ([Pair(item, {"blank": True})], [Pair(item, {"blank": b}) for b in (False, True)]):
            for _, source in walked(small, reader, pairs, show):
                assert isinstance(source, Source)
                assert source.frames.pixels.shape == (2, 25, 50, 3)
                assert source.native_size == (96, 192)


def test_a_damaged_stretch_costs_the_pairs_that_show_it(tmp_path: Path, clips: Clips) -> None:
    item = item_of(clips["damaged_middle.mp4"])
    frames = [[0, 10, 20], [10, 100, 150], [20, 30, 40], [190, 195], [100]]
    shown: list[list[int]] = []

    def measure(pair: Pair, source: Source) -> Measured:
        shown.append([Clips.spelled(picture) for picture in source.frames.pixels])
        return Measured({})

    with open_context(tmp_path / "run", [item]) as context:
        measure_pairs(context, pairs_of(item, frames), measure, "Measuring", show=shown_by_frames)
        records = context.folder.records()
    failed = [record.condition["frames"] for record in records if record.error]
    assert sorted(failed) == [frames[1], frames[4]]
    assert {record.error.type for record in records if record.error} == {"DamagedVideoError"}
    assert len(records) == len(frames)
    assert shown == [frames[0], frames[2], frames[3]]


def test_what_was_tried_for_all_is_not_tried_again_for_each(context: Context) -> None:
    """Orders of the same frames: when these cannot be read, one attempt says so for all of them."""

    def damaged(path: Path, frames: list[int]) -> None:
        raise DamagedVideoError("frame 2 cannot be decoded.", remedy="Copy it again.", path=path)

    reader = PretendReader(before=damaged)
    pairs = pairs_of(item_of(Path("v")), [[1, 2, 3], [3, 2, 1], [2, 3, 1]])
    got = [found for _, found in walked(context, reader, pairs, shown_by_frames)]
    assert [type(found) for found in got] == [DamagedVideoError] * 3
    assert len(reader.asked) == 1


@pytest.mark.parametrize("hangs", ["index", "read"])
def test_a_file_that_hangs_is_waited_for_once(context: Context, hangs: str) -> None:
    """Under every condition, as a foil of another video, in a later part: each wait is a time limit long."""
    waits = []

    class Hanging(PretendReader):
        def wait(self, what: str, path: Path) -> None:
            if path.name == "bad" and what == hangs:
                waits.append(path)
                raise ReaderTimeoutError("no answer.", remedy="Leave it out.", path=path)

        def index(self, path: Path) -> Any:
            self.wait("index", path)
            return super().index(path)

        def read(self, path: Path, indices: Any, *, keep: bool = True) -> np.ndarray:
            self.wait("read", path)
            return super().read(path, indices)

    good, bad = item_of(Path("good")), item_of(Path("bad"))

    def show(pair: Pair, library: Library) -> Shown:
        shown = shown_by_frames(pair, library)
        if not pair.condition.get("foil"):
            return shown
        library.index(Path("bad"))
        slots = (*shown.selection.slots, *slots_of("bad", [4]))
        return replace(shown, selection=replace(shown.selection, slots=slots), sources={"bad": Path("bad")})

    pairs = [*pairs_of(bad, [[1, 2], [3, 4], [5]]), *pairs_of(good, [[1], [2]])]
    pairs += [Pair(good, {"frames": [3], "foil": True}), Pair(good, {"frames": [4]})]
    got = [type(found) for _, found in walked(context, Hanging(), pairs, show)]
    assert got == [ReaderTimeoutError] * 3 + [Source, Source, ReaderTimeoutError, Source]
    assert len(waits) == 1


def test_what_a_recipe_raises_is_the_pairs_own_error(tmp_path: Path, clips: Clips) -> None:
    item = item_of(clips["h264.mp4"])

    def show(pair: Pair, library: Library) -> Shown:
        if pair.condition["frames"] == [1]:
            raise NoFoilError("there is none.", remedy="Give more items.")
        if pair.condition["frames"] == [2]:
            raise ZeroDivisionError("a fault of ours")
        return shown_by_frames(pair, library)

    with open_context(tmp_path / "run", [item]) as context:
        pairs = pairs_of(item, [[0], [1], [2], [3]])
        measure_pairs(context, pairs, lambda pair, source: Measured({}), "Measuring", show=show)
        records = context.folder.records()
    errors = {tuple(record.condition["frames"]): record.error for record in records}
    assert {frames: error and error.type for frames, error in errors.items()} == {
        (0,): None, (1,): "NoFoilError", (2,): "ZeroDivisionError", (3,): None
    }  # fmt: skip
    assert "'q'" in str(errors[1,]), "the item is named"


def test_what_is_wrong_with_the_run_ends_it(tmp_path: Path, clips: Clips) -> None:
    item = item_of(clips["h264.mp4"])

    def show(pair: Pair, library: Library) -> Shown:
        raise ConfigError("the scorer cannot be had.", remedy="Take another.")

    with (
        open_context(tmp_path / "run", [item]) as context,
        pytest.raises(ConfigError, match="scorer"),
    ):
        measure_pairs(context, pairs_of(item), lambda p, s: Measured({}), "Measuring", show=show)


def test_evidence_past_the_end_is_the_items_error_whatever_is_shown(context: Context) -> None:
    late = Evidence((Window(500.0, 600.0),), "exact")
    ((_, found),) = walked(
        context, PretendReader(), pairs_of(item_of(Path("v"), evidence=late), [[1]]), shown_by_frames
    )
    assert type(found).__name__ == "EvidenceOutsideVideoError"


@pytest.mark.parametrize("workers", [1, 3])
def test_memory_is_bounded_whatever_is_read_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    picture = 8 * 8 * 3
    monkeypatch.setattr(read_ahead, "_MOST_BYTES", 40 * picture)
    reader = PretendReader()
    random = np.random.default_rng(0)
    pairs = []
    for video in range(6):
        draws = [sorted(random.choice(1000, 9, replace=False).tolist()) for _ in range(8)]
        pairs += pairs_of(item_of(Path(f"v{video}"), f"q{video}"), draws)
    with open_context(tmp_path / "run", (), workers=workers) as context:
        for pair, source in walked(context, reader, pairs, shown_by_frames, workers):
            assert isinstance(source, Source)
            assert source.frames.pixels[:, 0, 0, 0].tolist() == [f % 251 for f in pair.condition["frames"]]
            del source
            time.sleep(0.002)  # reading gets as far ahead as it may
    assert 20 * picture < reader.most_held <= 40 * picture, reader.most_held / picture
    assert reader.held == 0


def test_one_pair_that_needs_more_is_read_when_nothing_else_is_held(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = 8 * 8 * 3
    monkeypatch.setattr(read_ahead, "_MOST_BYTES", 10 * picture)
    reader = PretendReader()
    many = list(range(30))
    pairs = pairs_of(item_of(Path("a")), [[1], many, many[::-1], [2], [700]])
    for _, source in walked(context, reader, pairs, shown_by_frames):
        assert isinstance(source, Source)
        del source
    assert reader.most_held == 30 * picture
    assert [len(frames) for _, frames in reader.asked] == [1, 30, 1], "the order reversed shares what is read"


@pytest.mark.parametrize("n_pairs", [1, 5])
def test_the_model_does_not_wait_for_what_comes_later(context: Context, n_pairs: int) -> None:
    """The first video's pairs come while the second one is being read, and that begins by itself."""
    worked = threading.Event()

    def slow(path: Path, frames: list[int]) -> None:
        if path.name != "first":
            assert worked.wait(20), "the first video's pairs wait for the second video"

    reader = PretendReader(before=slow)
    names, frames = ("first", "second", "third"), FRAMES[:n_pairs]
    pairs = [pair for name in names for pair in pairs_of(item_of(Path(name)), frames)]
    order = []
    for pair, source in walked(context, reader, pairs, shown_by_frames):
        assert isinstance(source, Source), source
        order.append(pair.item.video.name)
        if len(order) == n_pairs:
            started = time.monotonic()
            while len(reader.asked) < 2 and time.monotonic() - started < 10:
                time.sleep(0.01)
            assert reader.asked[1][0].name == "second", (
                "it is read while the first one's last pair is at hand"
            )
            worked.set()
    assert order == [name for name in names for _ in frames]


def test_threads_that_need_the_model_load_it_once(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    loads = []

    def slow_load(config: Any) -> Any:
        loads.append(config)
        time.sleep(0.2)
        return type("Loaded", (), {"provenance": {}})()

    monkeypatch.setattr(loading, "load_model", slow_load)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(context.model)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(loads) == 1
    assert all(one is found[0] for one in found)
    assert len(found) == 4


def test_an_interrupt_keeps_what_is_finished_and_ends_the_readers(tmp_path: Path, clips: Clips) -> None:
    item = item_of(clips["h264.mp4"])

    def measure(pair: Pair, source: Source) -> Measured:
        if pair.condition["frames"] == list(FRAMES[1]):
            raise KeyboardInterrupt
        return Measured({})

    before = {child.pid for child in psutil.Process().children()}
    with open_context(tmp_path / "run", [item]) as context:
        with pytest.raises(KeyboardInterrupt):
            measure_pairs(context, pairs_of(item), measure, "Measuring", show=shown_by_frames)
        assert len(context.folder.records()) == 1
    assert {child.pid for child in psutil.Process().children()} == before


def test_foil_frames_are_no_evidence_of_the_items_own_video() -> None:
    """Frames of two videos have the same numbers."""
    slots = (*slots_of("v", [5, 50]), *slots_of("w", [50, 51]))
    with_foil = Selection(slots, "test", 10.0, 100, 10.0, 4)
    evidence = Evidence((Window(5.0, 6.0, 50, 60),), "exact")
    assert with_foil.holds(evidence, "v").tolist() == [False, True, False, False]
