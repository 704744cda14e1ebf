"""Asking an engine: what goes to it together, what is written when, and what a failure costs."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from diagnostics.data.items import Item
from diagnostics.errors import CheckpointError, OutOfMemoryError, SharingError
from diagnostics.experiments.answering import answer_pairs
from diagnostics.experiments.context import Context
from diagnostics.experiments.pairs import Pair
from diagnostics.experiments.showing import Library, Shown
from diagnostics.models.backends.requests import Answer, Request
from diagnostics.store.record_log import RecordWriter, all_records
from diagnostics.store.records import Record

from ..video.conftest import Clips
from .engine import item_of, open_context, shown_by_frames


class Told:
    """An engine that answers with what it was shown, in this thread or in others.

    Args:
        answer: what to do with a request, instead.
        in_flight: more than one for threads.
    """

    def __init__(
        self,
        answer: Callable[[Request], Answer] | None = None,
        *,
        together: int = 4,
        in_flight: int = 1,
    ) -> None:
        self.together, self.in_flight = together, in_flight
        self.groups: list[list[str]] = []
        self.frames: list[set[int]] = []
        self.started = self.left = 0
        self._answer = answer or reply_of
        self._pool = ThreadPoolExecutor(in_flight)
        self._guard = threading.Lock()
        self.waiting = self.most_waiting = 0

    def __enter__(self) -> Told:
        return self

    def __exit__(self, *error: object) -> None:
        self.left += 1
        self._pool.shutdown(cancel_futures=True)

    def start(self) -> None:
        self.started += 1

    def flush(self) -> None: ...

    def submit(self, group: Sequence[Request]) -> Sequence[Future[Answer]]:
        self.groups.append([request.item.id for request in group])
        self.frames.append({id(request.frames.pixels) for request in group})
        if self.in_flight > 1:
            with self._guard:
                self.waiting += 1
                self.most_waiting = max(self.most_waiting, self.waiting)
            futures = [self._pool.submit(self._answer, request) for request in group]
            futures[-1].add_done_callback(self._done)
            return futures
        found: list[Future[Answer]] = []
        for request in group:
            future: Future[Answer] = Future()
            try:
                future.set_result(self._answer(request))
            except Exception as error:  # noqa: BLE001 - what the caller does with it is looked at
                future.set_exception(error)
            found.append(future)
        return found

    def _done(self, future: Future[Answer]) -> None:
        with self._guard:
            self.waiting -= 1


def reply_of(request: Request) -> Answer:
    shown = [slot.frame_index for slot in request.frames.selection.slots]
    return Answer(
        text="A", option_logprobs=(-0.1, -3.0), grid=((2, 4, 4),), n_visual_tokens=8,
        n_prompt_tokens=len(shown), seconds={"prepare": 0.5, "generate": 1.5}, notices=(f"shown: {shown}",),
    )  # fmt: skip


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    clips = Clips(tmp_path_factory.mktemp("clips"))
    return [
        clips.encode(clips.folder / f"{name}.mp4", range(start, start + 40), size=(64, 48))
        for name, start in (("one", 1000), ("two", 2000), ("three", 3000))
    ]


def items_of(videos: Sequence[Path], questions: int) -> list[Item]:
    return [item_of(video, f"{video.stem}{n}") for video in videos for n in range(questions)]


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Context]:
    with open_context(tmp_path / "run", ()) as opened:
        yield opened


def test_questions_of_a_video_go_together_in_order(context: Context, videos: list[Path]) -> None:
    engine = Told(together=3)
    pairs = [Pair(item) for item in items_of(videos, 4)]
    answer_pairs(context, pairs, engine, "Answering")
    expected = [[[f"{name}0", f"{name}1", f"{name}2"], [f"{name}3"]] for name in ("one", "two", "three")]
    assert engine.groups == [group for groups in expected for group in groups]
    assert all(len(pictures) == 1 for pictures in engine.frames), "one copy of the pictures a group"
    assert (engine.started, engine.left) == (1, 1)
    written = [record.item_id for record in all_records(context.folder.path)]
    assert written == [pair.item.id for pair in pairs]


def test_what_is_shown_otherwise_is_asked_apart(context: Context, videos: list[Path]) -> None:
    """Frames, form, JPEG and size each make another group; the engine gets each pair's own frames."""
    frames = [[0, 5], [0, 5], [0, 6], [0, 6], [0, 6], [0, 6], [0, 6]]
    changed: list[dict[str, Any]] = [{}, {}, {}, {"form": "images"}, {"jpeg": 30}, {"frame_pixels": 99}, {}]
    pairs = [Pair(item_of(videos[0], f"q{n}"), {"n": n, "frames": shown}) for n, shown in enumerate(frames)]

    def show(pair: Pair, library: Library) -> Shown:
        return replace(shown_by_frames(pair, library), **changed[pair.condition["n"]])

    engine = Told()
    answer_pairs(context, pairs, engine, "Answering", show=show)
    assert engine.groups == [["q0", "q1"], ["q2"], ["q3"], ["q4"], ["q5"], ["q6"]]
    for record in context.folder.records():
        assert f"shown: {record.condition['frames']}" in record.warnings


def test_what_is_heard_otherwise_is_asked_apart(context: Context, videos: list[Path]) -> None:
    """An engine works on a group's sound once, as on its pictures."""
    sounds = [None, None, Path("a.wav"), Path("a.wav"), Path("b.wav"), None]
    pairs = [Pair(replace(item_of(videos[0], f"q{n}"), audio=one)) for n, one in enumerate(sounds)]
    engine = Told()
    answer_pairs(context, pairs, engine, "Answering")
    assert engine.groups == [["q0", "q1"], ["q2", "q3"], ["q4"], ["q5"]]


def test_a_record_holds_what_the_engine_told(context: Context, videos: list[Path]) -> None:
    pairs = [Pair(item) for item in items_of(videos[:1], 2)]
    answer_pairs(context, pairs, Told(), "Answering")
    for record in context.folder.records():
        assert (record.raw, record.answer, record.correct) == ("A", "A", True)
        assert record.option_logprobs == {"A": -0.1, "B": -3.0}
        assert (record.n_units, record.tokens_per_unit, record.n_visual_tokens) == (2, 4, 8)
        assert (record.n_prompt_tokens, record.grid) == (8, ((2, 4, 4),))
        assert record.measures["choice_accuracy"] == 1.0
        assert (record.seconds["prepare"], record.seconds["generate"]) == (0.5, 1.5)
        assert set(record.seconds) == {"decode", "prepare", "generate", "busy", "idle"}
        assert record.seconds["decode"] > 0


def test_time_is_cut_into_busy_and_idle(
    context: Context, videos: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a clock that only reading and answering move: 5 s a video to be shown, 2 s a question."""
    from diagnostics.experiments import answering

    now = [0.0]
    monkeypatch.setattr(answering.time, "perf_counter", lambda: now[0])

    def show(pair: Pair, library: Library) -> Shown:
        item = library.checked(pair.item)
        return Shown(item, library.select(item))

    def answer(request: Request) -> Answer:
        now[0] += 2.0
        return reply_of(request)

    plain = answering._groups

    def after_five_seconds(*arguments: Any) -> Iterator[Any]:
        now[0] += 5.0
        yield from plain(*arguments)

    monkeypatch.setattr(answering, "_groups", after_five_seconds)
    answer_pairs(context, [Pair(item) for item in items_of(videos, 4)], Told(answer), "Answering", show=show)
    for record in context.folder.records():
        assert (record.seconds["busy"], record.seconds["idle"]) == (2.0, 1.25), record.item_id


def test_an_error_costs_its_item_alone(context: Context, videos: list[Path]) -> None:
    def answer(request: Request) -> Answer:
        if request.item.id == "one1":
            raise OutOfMemoryError("Out of memory.", remedy="Lower sampling.budget.")
        if request.item.id == "one2":
            raise ZeroDivisionError
        return reply_of(request)

    missing = item_of(videos[0].with_name("missing.mp4"), "missing")
    pairs = [*(Pair(item) for item in items_of(videos[:1], 4)), Pair(missing)]
    answer_pairs(context, pairs, Told(answer), "Answering")
    errors = {record.item_id: record.error for record in context.folder.records()}
    told = {name: None if error is None else error.type for name, error in errors.items()}
    assert told == {
        "one0": None, "one1": "OutOfMemoryError", "one2": "ZeroDivisionError", "one3": None,
        "missing": "MissingVideoError",
    }  # fmt: skip
    again = Told()
    answer_pairs(context, pairs, again, "Answering")
    assert again.groups == [["one1", "one2"]], "finished ones are not asked again, failed ones are"


def test_an_engine_that_breaks_costs_the_group(context: Context, videos: list[Path]) -> None:
    class Breaks(Told):
        def submit(self, group: Sequence[Request]) -> Sequence[Future[Answer]]:
            if group[0].item.id == "one0":
                raise RuntimeError("shapes do not match")
            return super().submit(group)

    answer_pairs(context, [Pair(item) for item in items_of(videos[:2], 2)], Breaks(), "Answering")
    told = [record.error.type if record.error else None for record in all_records(context.folder.path)]
    assert told == ["RuntimeError", "RuntimeError", None, None]


@pytest.mark.parametrize("kind", [SharingError, CheckpointError])
def test_an_error_about_the_run_ends_it(context: Context, videos: list[Path], kind: type) -> None:
    def answer(request: Request) -> Answer:
        raise kind("It cannot be.", remedy="Set backend.sharing=false.")

    engine = Told(answer)
    with pytest.raises(kind):
        answer_pairs(context, [Pair(item) for item in items_of(videos, 2)], engine, "Answering")
    assert len(engine.groups) == 1
    assert engine.left == 1
    assert all_records(context.folder.path) == []


def test_a_run_with_nothing_left_starts_no_engine(context: Context, videos: list[Path]) -> None:
    pairs = [Pair(item) for item in items_of(videos[:1], 2)]
    answer_pairs(context, pairs, Told(), "Answering")
    engine = Told()
    answer_pairs(context, pairs, engine, "Answering")
    assert (engine.groups, engine.started) == ([], 0)


def test_a_group_is_written_in_one_go(
    context: Context, videos: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between two writes, whole groups are there, and whole groups are asked again."""
    plain, written = RecordWriter.append, []

    def killed_at_second(self: RecordWriter, *records: Record) -> None:
        if written:
            raise KeyboardInterrupt
        written.append([record.item_id for record in records])
        plain(self, *records)

    pairs = [Pair(item) for item in items_of(videos, 3)]
    with monkeypatch.context() as patch:
        patch.setattr(RecordWriter, "append", killed_at_second)
        with pytest.raises(KeyboardInterrupt):
            answer_pairs(context, pairs, Told(), "Answering")
    assert written == [["one0", "one1", "one2"]]
    engine = Told()
    answer_pairs(context, pairs, engine, "Answering")
    assert engine.groups == [[f"{name}{n}" for n in range(3)] for name in ("two", "three")]
    assert [record.item_id for record in all_records(context.folder.path)] == [p.item.id for p in pairs]


def test_an_engine_elsewhere_has_several_groups_and_no_more(context: Context, videos: list[Path]) -> None:
    """The first video's question is answered only once the second one's is asked: both are under way."""
    later = threading.Event()

    def answer(request: Request) -> Answer:
        if request.item.id == "one0":
            assert later.wait(30), "the next video is asked meanwhile"
        if request.item.id == "two0":
            later.set()
        return reply_of(request)

    engine = Told(answer, in_flight=2, together=1)
    pairs = [Pair(item) for item in items_of(videos, 1)]
    answer_pairs(context, pairs, engine, "Answering")
    written = [record.item_id for record in all_records(context.folder.path)]
    assert sorted(written) == ["one0", "three0", "two0"]
    assert engine.most_waiting == 2


def test_an_answer_is_on_disk_while_the_next_frames_are_read(context: Context, videos: list[Path]) -> None:
    """The third video, and so the second one's frames, wait until the first one's answer is in the file."""
    pairs = [Pair(item) for item in items_of(videos, 1)]
    written: list[str] = []

    def show(pair: Pair, library: Library) -> Shown:
        if pair.item.id == "three0":
            deadline = time.monotonic() + 30
            while not written and time.monotonic() < deadline:
                written.extend(record.item_id for record in all_records(context.folder.path))
                time.sleep(0.01)
        item = library.checked(pair.item)
        return Shown(item, library.select(item))

    answer_pairs(context, pairs, Told(in_flight=2, together=1), "Answering", show=show)
    assert written == ["one0"]
    assert len(all_records(context.folder.path)) == 3


def test_what_ends_the_run_costs_no_answer_that_came(context: Context, videos: list[Path]) -> None:
    """The first question's error comes last of all; the others' answers are kept."""
    others = threading.Semaphore(0)

    def answer(request: Request) -> Answer:
        if request.item.id == "one0":
            assert all(others.acquire(timeout=30) for _ in range(2))
            raise CheckpointError("It cannot be.", remedy="Do something.")
        others.release()
        return reply_of(request)

    pairs = [Pair(item) for item in items_of(videos, 1)]
    with pytest.raises(CheckpointError):
        answer_pairs(context, pairs, Told(answer, in_flight=3, together=1), "Answering")
    assert {record.item_id for record in all_records(context.folder.path)} == {"two0", "three0"}


def test_pictures_of_written_groups_are_let_go(context: Context, videos: list[Path]) -> None:
    """Futures hold their callbacks for as long as they live; those must not hold the pictures."""
    futures: list[Future[Answer]] = []
    pictures: list[weakref.ref] = []

    class Keeps(Told):
        def submit(self, group: Sequence[Request]) -> Sequence[Future[Answer]]:
            pictures.extend(weakref.ref(request.frames.pixels) for request in group)
            futures.extend(super().submit(group))
            return futures[-len(group) :]

    def answer(request: Request) -> Answer:
        text = reply_of(request)
        del request
        return text

    pairs = [Pair(item) for item in items_of(videos, 1)]
    gc.disable()
    try:
        answer_pairs(context, pairs, Keeps(answer, in_flight=2, together=1), "Answering")
        assert len(futures) == 3
        assert [picture() for picture in pictures].count(None) >= 2
    finally:
        gc.enable()


def test_pictures_under_way_are_bounded(
    context: Context, videos: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from diagnostics.experiments import answering

    monkeypatch.setattr(answering, "_MOST_BYTES", 8 * 48 * 64 * 3)  # eight frames: one group's
    engine = Told(in_flight=3, together=1)
    answer_pairs(context, [Pair(item) for item in items_of(videos, 2)], engine, "Answering")
    assert engine.most_waiting == 1
    assert len(all_records(context.folder.path)) == 6
