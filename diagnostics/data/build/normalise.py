"""Source normalisation: is the video there, can it be decoded, is it the one that was annotated?

The real file decides: rows past its end are dropped, annotated length and rate are compared with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from diagnostics.data.build.annotations import Interval, Procedure, Track, VideoFacts
from diagnostics.data.build.audit import Audit
from diagnostics.data.build.reasons import LengthMismatchError, PastEndError
from diagnostics.data.build.settings import Config
from diagnostics.errors import ItemError, VideoError
from diagnostics.video.index import VideoIndex

__all__ = ["Probe", "facts_of", "normalise"]

Probe = Callable[[Path], VideoFacts]
"""Opens a video and says what it holds; raises `VideoError`."""


def facts_of(index: VideoIndex) -> VideoFacts:
    """What the pipeline needs of a video's index."""
    return VideoFacts(index.duration, index.fps, index.seconds)


def normalise(procedures: Iterable[Procedure], probe: Probe, config: Config, audit: Audit) -> list[Procedure]:
    """The procedures whose video can be used, with `facts`, and without rows that lie past its end."""
    kept = []
    for procedure in procedures:
        try:
            facts = probe(procedure.video)
            _compare(procedure, facts, config)
        except (VideoError, ItemError) as error:
            audit.drop("procedures", error, procedure=procedure.name, place=procedure.video_place)
            continue
        kept.append(_within(replace(procedure, facts=facts), config, audit))
    return kept


def _compare(procedure: Procedure, facts: VideoFacts, config: Config) -> None:
    """Annotated against real; one percent of the rate, `tolerance_seconds` of the length.

    Raises:
        LengthMismatchError: they differ by more.
    """
    tolerance = config.tolerance_seconds
    real = {"fps": facts.fps, "frames": float(facts.n_frames), "duration": facts.duration}
    allowed = {"fps": 0.01 * facts.fps, "frames": tolerance * facts.fps, "duration": tolerance}
    for name, stated in procedure.stated.items():
        if abs(stated - real[name]) > allowed[name] + 1e-9:
            raise LengthMismatchError(
                f"{name} is annotated as {stated:g}, the video has {real[name]:g}.",
                remedy="Check that this is the video that was annotated; correct the annotation if it is.",
                path=procedure.video,
            )


def _within(procedure: Procedure, config: Config, audit: Audit) -> Procedure:
    """The procedure without rows past the video's end; ends inside the tolerance are cut to it."""
    end = procedure.real.duration
    limit = end + config.tolerance_seconds

    def usable(row: Interval, track: str) -> bool:
        if row.start < end and row.end <= limit:
            return True
        error = PastEndError(
            f"The row lasts from {row.start:g} to {row.end:g} s, the video {end:g} s.",
            remedy="Correct the times, or check that this is the video.",
            path=str(row.place),
        )
        audit.drop("rows", error, procedure=procedure.name, place=row.place, track=track)
        return False

    tracks = {}
    for name, track in procedure.tracks.items():
        kept = [row for row in track.intervals if usable(row, name)]
        past = [(row.start, row.end) for row in track.intervals if row not in kept]
        tracks[name] = Track(tuple(_cut(row, end) for row in kept), (*track.doubts, *past), track.lost)
    # One bad row of a lesion costs the lesion: half of its windows would be evidence with a hole.
    seen = [(lesion, [usable(row, "lesions") for row in lesion.rows]) for lesion in procedure.lesions]
    whole = [lesion for lesion, rows in seen if all(rows)]
    return replace(
        procedure,
        tracks=tracks,
        lesions=tuple(replace(lesion, rows=tuple(_cut(row, end) for row in lesion.rows)) for lesion in whole),
        lesions_doubted=procedure.lesions_doubted or len(whole) < len(procedure.lesions),
    )


def _cut(row: Interval, end: float) -> Interval:
    return replace(row, end=min(row.end, end))
