"""The matcher: a question and its record to the source's video, its window, and so to evidence.

The benchmark's record gives what turns times into frames (`fps`, `num_frames`, `duration_seconds`); the
source gives the annotation. Where the two disagree about how long the video is, they are not the same video,
or not cut alike, and the item is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Literal

from diagnostics.data.build.annotations import Track
from diagnostics.data.build.counting import Counted, counted_as, source_of, task_of
from diagnostics.data.items import Item
from diagnostics.data.sources._source import Annotated, Base, Clip, Source, SourceFile, plain
from diagnostics.data.sources._time import to_frames
from diagnostics.data.sources.archives import Archive
from diagnostics.data.sources.cases import Case, Found, LesionWindows, Span, Words, by_style
from diagnostics.data.sources.reasons import (
    AmbiguousSourceError,
    DurationsDisagreeError,
    RecordIncompleteError,
    SourceUnknownError,
    UnderivableError,
    WindowUnreadError,
)
from diagnostics.data.sources.rules import TRACK_OF, label_run, local, window_alone
from diagnostics.data.sources.subjects import labels_named
from diagnostics.data.sources.windows import Style, clock_style

__all__ = ["KINDS", "Derived", "Kind", "Matcher", "Rules", "style_of"]

Kind = Literal["exact", "approx", "proxy", "global", "label-run", "missing"]

KINDS: tuple[Kind, ...] = ("exact", "approx", "proxy", "global", "label-run", "missing")
"""What the evidence of an item is: the annotation itself; that, with a doubt that its warnings name; derived
from another annotation; the whole video; all runs of the right answer's label; not to be had."""

_WHOLE = ("BPQ", "WR", "RSR", "CPR")
"""Families about the whole video. US-Study's questions are too, whatever their family."""

_NAMING = ("WR", "RSR", "CPR")
"""Those of them that name phases or steps."""


@dataclass(frozen=True)
class Rules:
    """How evidence is derived, where that is ours to choose.

    Attributes:
        onset_seconds: how long the window after a phase's onset is (the paper states none).
        lesion_windows: what stands for a lesion: all its boxes, their longest run, or its appearance.
        first_seconds: how long an appearance is, at most.
        tolerance_seconds: by which the annotated video may differ in length from the benchmark's, or
        tolerance_share: by this share of it, where that is more.
        labelled_share: how much of the video must be labelled, where the files tell the labelled part only.
        instant_seconds: how long the window is where a question names one moment; None leaves those unread.
        label_runs: where a window cannot be read, all runs of the right answer's label.
        window_alone: where there are no labels, the window in the question's words.
    """

    onset_seconds: float = 10.0
    lesion_windows: LesionWindows = "all"
    first_seconds: float = 10.0
    tolerance_seconds: float = 2.0
    tolerance_share: float = 0.002
    labelled_share: float = 0.7
    instant_seconds: float | None = None
    label_runs: bool = True
    window_alone: bool = False

    def tolerance(self, seconds: float) -> float:
        """By how much lengths may differ, in seconds."""
        return max(self.tolerance_seconds, self.tolerance_share * seconds)


@dataclass(frozen=True)
class Derived:
    """What was derived for one item: a row of the audit.

    Attributes:
        item: the question.
        task, counted: its family, and how the paper's audit counts it.
        source: whose annotation, as the paper writes it; stem: the source's name of the video.
        kind: one of `KINDS`.
        seconds, frames: the same windows in both, half-open, sorted, disjoint.
        alternatives: other windows in frames that could stand for the same, by name: of a lesion.
        targeted: of a question about the whole video, where the phases and steps lie that it or its options
            name: frames by label, by track. No evidence, but where one would look.
        rule: how they came out.
        base, time_base: what the annotation counts, and how its files' numbers became that.
        files: what was read. label_version: which release of the labels.
        reason_kind, reason: why there is none, in a few words and at length.
        warnings: what a reader should know, each beginning with its kind.
    """

    item: Item
    task: str
    counted: Counted
    kind: Kind = "missing"
    source: str = ""
    stem: str = ""
    seconds: tuple[tuple[float, float], ...] = ()
    frames: tuple[tuple[int, int], ...] = ()
    alternatives: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    targeted: Mapping[str, Mapping[str, tuple[tuple[int, int], ...]]] = field(default_factory=dict)
    rule: str = ""
    base: Base | None = None
    time_base: str = ""
    files: tuple[SourceFile, ...] = ()
    label_version: str = ""
    reason_kind: str = ""
    reason: str = ""
    warnings: tuple[str, ...] = ()


def style_of(items: Sequence[Item]) -> Style | None:
    """How the questions about windows write clocks of two parts; None where they do not show it."""
    clips = [(item, _clip(item)) for item in items if task_of(item) in TRACK_OF]
    return clock_style((item.question, clip.seconds) for item, clip in clips if clip is not None)


class Matcher:
    """Derives evidence from archives by rules.

    Args:
        style: how the questions write clocks of two parts (`clock_style`).
    """

    def __init__(self, archives: Mapping[str, Archive], rules: Rules, style: Style | None = None) -> None:
        self._archives, self._rules = archives, rules
        self._words = Words(style, rules.instant_seconds)

    def derive(self, item: Item) -> Derived:
        """The evidence of one item, or why there is none."""
        told = Derived(item, task_of(item), counted_as(item))
        clip = _clip(item)
        why: UnderivableError | None = None
        try:
            archive, by_name = self._archive(item)
            told = replace(told, source=archive.source.name, warnings=by_name)
            annotated = archive.annotated(_video_stem(item), clip)
            told = _described(told, annotated)
            if clip is not None and told.task in _NAMING:
                self._compare(annotated, clip)
                told = replace(told, targeted=_targeted(item, archive.source, annotated, clip))
            if clip is not None and not _whole_video(told):
                heard = (*self._compare(annotated, clip), *by_style(item, clip, self._words))
                told = replace(told, warnings=(*told.warnings, *heard))
                found = self._found(self._case(told, archive, annotated, clip))
                return _timed(told, found, annotated.base, clip)
        except UnderivableError as error:
            why = error
        if _whole_video(told):
            unread = () if why is None else (f"labels not read: {why.problem}",)
            return replace(told, kind="global", rule="the whole video", warnings=(*told.warnings, *unread))
        if clip is None:
            return _missing(told, _incomplete(item))
        assert why is not None
        return self._without_labels(told, why, clip)

    def _archive(self, item: Item) -> tuple[Archive, tuple[str, ...]]:
        """Whose video it is: by the record's data set, else by the video's folder, else by its name."""
        dataset, stem = source_of(item), _video_stem(item)
        every = self._archives.values()
        told_by = {plain(dataset), plain(str(item.metadata.get("dataset", "")))} - {""}
        by_dataset = named = [one for one in every if told_by & _names(one)]
        if not named:
            folder = plain(PurePosixPath(item.video_id).parent.name)
            named = [one for one in every if folder in _names(one)]
        if not named:
            named = [one for one in every if one.source.stem(stem) is not None]
        if not named:
            raise SourceUnknownError(
                f"Neither the data set {dataset!r} nor the video {stem!r} is of a known source.",
                remedy=f"Known: {', '.join(one.source.name for one in every)}.",
            )
        if len(named) > 1:
            claim = " and ".join(one.source.name for one in named)
            raise AmbiguousSourceError(
                f"{claim} both claim the video {stem!r} of the data set {dataset!r}.",
                remedy="The record's `dataset` should name one of them.",
            )
        told = f"by the video's path: no source is called {dataset!r}"
        return named[0], () if by_dataset else (told,)

    def _compare(self, annotated: Annotated, clip: Clip) -> tuple[str, ...]:
        """Refuse an annotation of another length; tell of one that differs within the tolerance."""
        length: float | None
        if annotated.base == "frames":
            length, stated, a_second, unit = annotated.n_frames, float(clip.n_frames), clip.fps, "frames"
        else:
            length, stated, a_second, unit = annotated.seconds, clip.seconds, 1.0, "s"
        if length is None:
            return (f"length unknown: {annotated.source}'s files do not tell how long the video is",)
        allowed = self._rules.tolerance(clip.seconds)
        if abs(clip.n_frames / clip.fps - clip.seconds) > allowed:
            raise DurationsDisagreeError(
                f"The record's {clip.n_frames} frames at {clip.fps:g} a second are not its "
                f"{clip.seconds:g} s ({allowed:g} s may differ).",
                remedy="Compare the record with the video; or raise exp.tolerance_seconds.",
            )
        longer = (length - stated) / a_second
        words = f"{length:.10g} {unit} are annotated, the record has {stated:.10g} {unit}"
        if not annotated.whole and longer < 0:
            wrong, bound = length < self._rules.labelled_share * stated, "too little of it is labelled"
        else:
            wrong, bound = abs(longer) > allowed, f"{allowed:g} s may differ"
        if wrong:
            raise DurationsDisagreeError(
                f"{words} ({bound}).",
                remedy="Another video, cut, or release; or raise exp.tolerance_seconds.",
                path=annotated.files[0].path if annotated.files else None,
            )
        warnings = []
        if annotated.base == "frames" and longer and annotated.whole:
            warnings.append(f"frame counts differ: {words}; the annotation's indices were taken")
        fps = annotated.fps
        if annotated.base == "frames" and fps is not None and abs(fps - clip.fps) > 0.01 * clip.fps:
            warnings.append(
                f"rates differ: {fps:g} frames a second are annotated, the record has {clip.fps:g}"
            )
        return tuple(warnings)

    def _case(self, told: Derived, archive: Archive, annotated: Annotated, clip: Clip) -> Case:
        return Case(
            item=told.item,
            task=told.task,
            source=archive.source,
            annotated=annotated,
            clip=clip,
            words=self._words,
            scale=clip.fps if annotated.base == "frames" else 1.0,
            onset_seconds=self._rules.onset_seconds,
            first_seconds=self._rules.first_seconds,
            lesion_windows=self._rules.lesion_windows,
        )

    def _found(self, case: Case) -> Found:
        """By the family's rule; where its window cannot be read, by the right answer's label."""
        try:
            return local(case)
        except WindowUnreadError as error:
            if not self._rules.label_runs or case.task not in TRACK_OF:
                raise
            try:
                found = label_run(case)
            except UnderivableError as lacking:
                lacking.warnings = (f"{error.kind}: {error.problem}",)
                raise
            return replace(found, warnings=(*found.warnings, f"{error.kind}: {error.problem}"))

    def _without_labels(self, told: Derived, error: UnderivableError, clip: Clip) -> Derived:
        """The window alone where that is wanted and can be read; else nothing."""
        if self._rules.window_alone and told.task in TRACK_OF and not isinstance(error, WindowUnreadError):
            try:
                found = window_alone(told.item, clip, self._words, error.problem)
            except WindowUnreadError as unread:
                return _missing(told, error if unread.why == "none" else unread)
            return _timed(told, found, "seconds", clip)
        return _missing(told, error)


def _names(archive: Archive) -> set[str]:
    return {plain(name) for name in (archive.key, archive.source.name, *archive.source.datasets)}


def _video_stem(item: Item) -> str:
    return PurePosixPath(item.video_id).stem


def _described(told: Derived, annotated: Annotated) -> Derived:
    """With what is known of the annotation that was read."""
    return replace(
        told,
        stem=annotated.stem,
        base=annotated.base,
        time_base=annotated.time_base,
        files=annotated.files,
        label_version=annotated.label_version,
        warnings=(*told.warnings, *(f"annotation: {warning}" for warning in annotated.warnings)),
    )


def _missing(told: Derived, error: UnderivableError) -> Derived:
    where = f" ({error.path})" if error.path else ""
    return replace(
        told,
        kind="missing",
        reason_kind=error.kind,
        reason=f"{error.problem}{where}",
        warnings=(*told.warnings, *error.warnings),
    )


def _whole_video(told: Derived) -> bool:
    """Whether the question is about all of its video, so that no window singles its evidence out."""
    return told.task in _WHOLE or "usstudy" in (plain(told.source), plain(source_of(told.item)))


_FACTS = ("duration_seconds", "fps", "num_frames")
_LARGEST = 1e12
"""Above any number of frames; JSON writes integers that no float holds."""
_SHORTEST = 0.002
"""Seconds: shorter windows may be none when they are rounded to milliseconds."""


def _number(item: Item, key: str) -> float | None:
    """A number above zero that the record tells; None where it tells none."""
    value = item.metadata.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < _LARGEST:
        return None
    return float(value)


def _clip(item: Item) -> Clip | None:
    """The item's video as its record tells; None where that is not all."""
    seconds, fps, n_frames = (_number(item, key) for key in _FACTS)
    if seconds is None or fps is None or n_frames is None:
        return None
    return Clip(int(n_frames), fps, seconds)


def _targeted(
    item: Item, source: Source, annotated: Annotated, clip: Clip
) -> dict[str, dict[str, tuple[tuple[int, int], ...]]]:
    """All runs of the phases and steps that the question or its options name, right or wrong."""
    found: dict[str, dict[str, tuple[tuple[int, int], ...]]] = {}
    for name in ("phases", "steps"):
        track = annotated.tracks.get(name, Track())
        for label in labels_named((item.question, *item.options), source, name, track.labels):
            runs = [(run.start, run.end) for run in track.runs if run.label == label]
            found.setdefault(name, {})[label] = tuple(_frames(runs, annotated.base, clip))
    return found


def _incomplete(item: Item) -> RecordIncompleteError:
    key = next(key for key in _FACTS if _number(item, key) is None)
    return RecordIncompleteError(
        f"The record's {key!r} is {item.metadata.get(key)!r}.",
        remedy="Compare the record with the released file.",
    )


def _timed(told: Derived, found: Found, base: Base, clip: Clip) -> Derived:
    """The spans in seconds and in frames; those that hold no frame of the video are dropped and named."""
    seconds: list[Span] = []
    frames: list[tuple[int, int]] = []
    warnings = [*told.warnings, *found.warnings]
    for span in found.spans:
        inside = _frames([span], base, clip)
        if not inside:
            warnings.append(f"outside: {span[0]:g} to {span[1]:g} {base} is not in the video")
            continue
        ((first, end),) = inside
        shown = (first / clip.fps, end / clip.fps)
        low, high = span if base == "seconds" else shown
        low, high = max(0.0, float(low)), min(float(high), clip.seconds)
        if high - low < _SHORTEST:  # too short to be written, or behind the stated end: its frame's own time
            low, high = shown
        if frames and first < frames[-1][1]:  # two stretches in one frame
            low, first = seconds.pop()[0], frames.pop()[0]
        frames.append((first, end))
        seconds.append((low, high))
    told = replace(told, warnings=tuple(warnings), rule=found.rule)
    if not frames:
        return replace(
            told,
            kind="missing",
            reason_kind="nothing labelled",
            reason="None of the windows holds a frame of the video.",
        )
    others = {name: tuple(_frames(spans, base, clip)) for name, spans in found.alternatives.items()}
    others = {name: shown for name, shown in others.items() if shown}
    return replace(told, kind=found.kind, seconds=tuple(seconds), frames=tuple(frames), alternatives=others)


def _frames(spans: Sequence[Span], base: Base, clip: Clip) -> list[tuple[int, int]]:
    return list(to_frames(spans, clip.fps if base == "seconds" else 1.0, clip.n_frames))
