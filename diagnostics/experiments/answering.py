"""Asking an engine: questions that are shown the same frames go to it together, groups in the order of
videos.

`pairs.measure_pairs` looks inside a model, one pair after the other. Here the answer is all that is wanted,
so that any engine can give it and questions of a video can share their work. Reading ahead, resuming and what
is recorded of a failure are the same.

Records of a group are written in one go, as soon as it is answered: a run that was killed asks whole groups
again, never half of one.
Times stand in each record: `decode` (in the readers, beside the engine), `prepare` and `generate` as the
engine told them, and the wall clock cut in two, `busy` while the engine had a question and `idle` while it
had none; what a group shares is divided evenly over its questions.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from diagnostics.experiments.context import Context
from diagnostics.experiments.film import Film
from diagnostics.experiments.pairs import (
    Pair,
    common_fields,
    failure_of,
    film_of,
    pending_chunks,
    short_name,
    shown_fields,
    with_source,
)
from diagnostics.experiments.read_ahead import Fetch
from diagnostics.experiments.replies import answer_fields, choice_measure
from diagnostics.experiments.showing import Show, Source, as_sampled
from diagnostics.models.backends.requests import Answer, Engine, PromptSettings, Reply, Request
from diagnostics.store.records import Record

__all__ = ["answer_pairs"]

_MOST_BYTES = 2 << 30
"""Pictures of the groups that an engine may have waiting; a larger group waits until it has none."""


def answer_pairs(
    context: Context,
    pairs: Sequence[Pair],
    engine: Engine,
    task: str,
    *,
    show: Show = as_sampled,
    prompt_ids: bool = False,
) -> None:
    """Ask about each pair that is not finished yet and append its record.

    With an engine that holds one group at a time records come in the order of `pairs`; with others, groups
    are written as they finish.

    Args:
        prompt_ids: keep the token ids of each prompt in its record.
    """
    with (
        engine,
        pending_chunks(context, pairs, task, show) as (chunks, advance),
        film_of(context, pairs) as film,
    ):

        def tell(pair: Pair, n: int) -> None:
            advance(short_name(pair), n)

        desk = _Desk(context, engine, tell, film, prompt_ids)
        for chunk in chunks:
            for group in _groups(context, chunk, engine.together):
                desk.take(group)
                del group  # with the pictures it holds, before more are read
        desk.finish()


@dataclass(eq=False)
class _Asked:
    """A pair on its way: its record's fields so far, and either what it shows or why it cannot be asked."""

    pair: Pair
    fields: dict[str, Any]
    source: Source | None = None
    error: Exception | None = None
    future: Future[Answer] | None = None


@dataclass(eq=False)
class _Group:
    """Pairs whose records are written together; those with a source are shown the same frames."""

    asked: list[_Asked] = field(default_factory=list)
    film: Future[None] | None = None

    @property
    def askable(self) -> list[_Asked]:
        return [one for one in self.asked if one.source is not None]

    @property
    def n_bytes(self) -> int:
        first = next(iter(self.askable), None)
        return 0 if first is None or first.source is None else first.source.frames.pixels.nbytes


def _groups(context: Context, chunk: list[tuple[Pair, Fetch]], together: int) -> Iterator[_Group]:
    """The pairs of a chunk, emptied on the way: neighbours that are shown the same frames, so many at most.

    Pairs that cannot be shown join the group at hand.
    """
    group = _Group()
    while chunk:
        pair, fetch = chunk.pop(0)
        asked = _Asked(pair, common_fields(context, pair))
        try:
            asked.source = fetch()
        except Exception as error:  # noqa: BLE001 - recorded, or raised again, where the group is written
            asked.error = error
        del fetch
        before = group.askable
        if asked.source is not None and before:
            first = before[0].source
            assert first is not None
            if len(before) == together or not _alike(first, asked.source):
                yield group
                group = _Group()
            else:  # one copy of the pictures for all
                asked.source = replace(asked.source, frames=first.frames)
        group.asked.append(asked)
    if group.asked:
        yield group


def _alike(one: Source, other: Source) -> bool:
    """Whether two pairs of a video are shown the same pictures, and the same sound, in the same way."""
    return (
        one.form == other.form
        and one.jpeg == other.jpeg
        and one.frame_pixels == other.frame_pixels
        and one.frames.selection == other.frames.selection
        and one.frames.pixels.shape == other.frames.pixels.shape
        and one.item.video == other.item.video
        and one.item.audio == other.item.audio
        and one.item.clip == other.item.clip
    )


class _Desk:
    """Hands groups to the engine, as many as it can hold, and writes each one's records once it is answered:
    at once, in whatever thread that happens, also while this one waits for frames."""

    def __init__(
        self,
        context: Context,
        engine: Engine,
        advance: Callable[[Pair, int], None],
        film: Film,
        prompt_ids: bool,
    ) -> None:
        self._context, self._engine, self._advance = context, engine, advance
        self._film, self._prompt_ids = film, prompt_ids
        self._started = False
        self._changed = threading.Condition()  # guards what follows
        self._waiting: list[_Group] = []
        self._failed: BaseException | None = None
        self._clock = time.perf_counter()
        self._seconds = {"busy": 0.0, "idle": 0.0}

    def take(self, group: _Group) -> None:
        """Ask a group, once there is room for it."""
        if self._waiting and not self._room(group):
            self._engine.flush()
        self._wait(lambda: not self._waiting or self._room(group))
        if not self._started:
            self._tick()
            self._engine.start()
            self._started, self._clock = True, time.perf_counter()
        self._advance(group.asked[0].pair, 0)
        with self._changed:
            self._tick()
            self._waiting.append(group)
        askable = group.askable
        if askable:
            shown = [(one.pair.key, one.source) for one in askable if one.source is not None]
            group.film = self._film.begin(shown)
            try:
                with self._context.waiting("waiting for the model"):
                    futures = self._engine.submit([self._request(one) for one in askable])
            except Exception as error:  # noqa: BLE001 - recorded, or raised again, where the group is written
                futures = [_failed(error) for _ in askable]
            for one, future in zip(askable, futures, strict=True):
                one.future = future
            for future in futures:
                future.add_done_callback(lambda _: self._write_if_done(group))
        else:
            self._write_if_done(group)
        self._wait(lambda: True)

    def finish(self) -> None:
        """Wait for what is left."""
        self._engine.flush()
        self._wait(lambda: not self._waiting)

    def _wait(self, ready: Callable[[], bool]) -> None:
        """Until it is so; raises what writing a group raised meanwhile, once."""
        with self._context.waiting("waiting for answers"), self._changed:
            self._changed.wait_for(lambda: self._failed is not None or ready())
            if self._failed is not None:
                raise self._failed

    def _room(self, group: _Group) -> bool:
        held = sum(one.n_bytes for one in self._waiting)
        return len(self._waiting) < self._engine.in_flight and held + group.n_bytes <= _MOST_BYTES

    def _request(self, one: _Asked) -> Request:
        assert one.source is not None
        backend, source = self._context.config.backend, one.source
        settings = PromptSettings(
            backend.instruction, backend.max_new_tokens, source.form, source.frame_pixels
        )
        return Request(source.item, one.pair.condition, source.frames, settings)

    def _write_if_done(self, group: _Group) -> None:
        """Write a group's records where all of it is answered and nobody has written them yet."""
        with self._changed:
            if group not in self._waiting or not _is_done(group):
                return
            self._tick()
            self._waiting.remove(group)
            shares: dict[str, float | None] = {
                name: seconds / len(group.asked) for name, seconds in self._seconds.items()
            }
            self._seconds = dict.fromkeys(self._seconds, 0.0)
            try:
                if group.film is not None:
                    group.film.result()
                self._context.folder.append_all([self._record(one, shares) for one in group.asked])
                for one in group.asked:
                    self._advance(one.pair, 1)
                group.asked.clear()  # its pictures go: the futures hold the group by their callback
            except BaseException as error:  # noqa: BLE001 - raised where the run can end (`_wait`)
                self._failed = self._failed or error
            self._changed.notify_all()

    def _tick(self) -> None:
        """Count the time since the last tick: the engine was busy where it had a group."""
        now = time.perf_counter()
        self._seconds["busy" if self._waiting else "idle"] += now - self._clock
        self._clock = now

    def _record(self, one: _Asked, shares: dict[str, float | None]) -> Record:
        fields = one.fields
        if one.source is not None:
            fields |= shown_fields(one.source)
        error = one.error if one.future is None else one.future.exception()
        if error is not None:
            return Record(**fields, seconds=shares, error=failure_of(one.pair, error))
        assert one.source is not None
        assert one.future is not None
        answer = one.future.result()
        fields |= _answered(one.source, answer, self._context.config.backend.max_new_tokens)
        if self._prompt_ids:
            fields["prompt_ids"] = answer.prompt_ids
        fields["seconds"] = {**fields["seconds"], **shares}
        return Record(**(fields | with_source(one.source, fields)))


def _is_done(group: _Group) -> bool:
    return all(one.future is None or one.future.done() for one in group.asked)


def _failed(error: Exception) -> Future[Answer]:
    future: Future[Answer] = Future()
    future.set_exception(error)
    return future


def _answered(source: Source, answer: Answer, max_new_tokens: int) -> dict[str, Any]:
    """Record fields of an answer."""
    item = source.item
    reply = Reply(
        answer.text, answer.option_logits, answer.option_logprobs, answer.n_new_tokens or 0, answer.cut
    )
    warnings = [*answer.notices]
    if answer.cut and not item.options:  # a letter comes first; what else is said does not matter
        warnings.append(f"cut_reply: the reply goes on after {max_new_tokens} tokens")
    return {
        **answer_fields(item, reply),
        **_units(answer),
        "grid": answer.grid,
        "n_visual_tokens": answer.n_visual_tokens,
        "n_prompt_tokens": answer.n_prompt_tokens,
        "prompt_sha256": answer.prompt_sha256,
        "measures": choice_measure(item, reply),
        "seconds": dict(answer.seconds),
        "warnings": warnings,
    }


def _units(answer: Answer) -> dict[str, int]:
    """Temporal units and their tokens, where the engine tells them, or the grid of its videos or images."""
    if answer.unit_sizes is not None:
        same = set(answer.unit_sizes)
        found = {"n_units": len(answer.unit_sizes)} if same else {}
        return found | ({"tokens_per_unit": same.pop()} if len(same) == 1 else {})
    n_units = sum(grid[0] for grid in answer.grid)
    if not n_units or answer.n_visual_tokens is None:
        return {}
    found = {"n_units": n_units}
    if answer.n_visual_tokens % n_units == 0 and len({grid[1:] for grid in answer.grid}) == 1:
        found["tokens_per_unit"] = answer.n_visual_tokens // n_units
    return found
