"""Errors a person can act on: what is wrong, with which item and file, and what to do.

Everything the toolkit raises on purpose derives from `DiagnosticsError`. An error about one item
is recorded in that item's record and the run goes on; an error about the run stops it before any
work is done.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = [
    "AnswerNotAnOptionError",
    "CheckpointError",
    "ConfigError",
    "ConfigurationMismatchError",
    "ControlTokenError",
    "DamagedRunError",
    "DamagedVideoError",
    "DataFileError",
    "DiagnosticsError",
    "DuplicateItemError",
    "DuplicateRecordError",
    "EmptySelectionError",
    "EmptyVideoError",
    "EndpointError",
    "EndpointUnusableError",
    "EvidenceOutsideVideoError",
    "ForeignFolderError",
    "FrameCountError",
    "IncompleteRunError",
    "InconsistentTensorsError",
    "InexactReaderError",
    "ItemError",
    "LockedError",
    "MissingVideoError",
    "ModelError",
    "NoEvidenceError",
    "NoVideoStreamError",
    "ObservationError",
    "OutOfMemoryError",
    "PathLeavesRootError",
    "PromptTooLongError",
    "ReaderCrashError",
    "ReaderTimeoutError",
    "RecordError",
    "RunError",
    "ScorerUnavailableError",
    "ScoresError",
    "SharingError",
    "TooFewOptionsError",
    "TruncatedVideoError",
    "UnknownLabelError",
    "UnwritableFolderError",
    "VideoError",
]


class DiagnosticsError(Exception):
    """Base of every deliberate error.

    Args:
        problem: what is wrong, in one sentence that names the offending value.
        remedy: what the person can do about it, in one sentence.
        item_id: the item it concerns, where there is one.
        path: the file it concerns, where there is one.
    """

    def __init__(
        self,
        problem: str,
        *,
        remedy: str,
        item_id: str | None = None,
        path: str | Path | None = None,
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy
        self.item_id = item_id
        self.path = None if path is None else str(path)

    def __reduce__(self) -> tuple:
        """Survive pickling between processes: keyword-only arguments need help."""
        return _rebuild, (type(self), self.problem, self.remedy, self.item_id, self.path)

    def __str__(self) -> str:
        about = [f"item {self.item_id!r}"] if self.item_id else []
        if self.path:
            kind = "folder" if os.path.isdir(self.path) else "file"  # noqa: PTH112 - Path's raises for odd names
            about.append(f"{kind} {self.path}")
        prefix = f"{', '.join(about)}: " if about else ""
        return f"{prefix}{self.problem} {self.remedy}"

    def about(self, item_id: str) -> DiagnosticsError:
        """This error, said of an item: a copy, since several items may share one failure."""
        return type(self)(self.problem, remedy=self.remedy, item_id=item_id, path=self.path)


def _rebuild(
    cls: type[DiagnosticsError],
    problem: str,
    remedy: str,
    item_id: str | None,
    path: str | None,
) -> DiagnosticsError:
    return cls(problem, remedy=remedy, item_id=item_id, path=path)


class ItemError(DiagnosticsError):
    """One item cannot be measured as it is written."""


class TooFewOptionsError(ItemError):
    """A multiple-choice item has a single option."""


class AnswerNotAnOptionError(ItemError):
    """The answer names none of the item's options."""


class DuplicateItemError(ItemError):
    """Two items carry the same id."""


class EvidenceOutsideVideoError(ItemError):
    """An evidence window begins or ends outside its video."""


class PathLeavesRootError(ItemError):
    """A path in a data file points outside the data set's root."""


class ControlTokenError(ItemError):
    """The item's text holds a token that steers the model, such as the end of a turn."""


class RecordError(ItemError):
    """A record of a data file is not written as its format says: bad JSON, a missing or misspelt key."""


class NoEvidenceError(ItemError):
    """Evidence frames are to be shown, and the item has no window, or none that holds a frame."""


class NoFoilError(ItemError):
    """Another item's evidence is to speak for a wrong option, and no item has such evidence."""


class ScoresError(ItemError):
    """Scores, features or changes do not fit the candidate frames they are for."""


class EmptySelectionError(ItemError):
    """A sampler chose no frame at all."""


class DataFileError(DiagnosticsError):
    """A data file as a whole cannot be read: missing, not JSON, no items."""


class UnknownLabelError(DataFileError):
    """An annotation file uses a label that its data set's label list lacks: another version of the labels."""


class VideoError(DiagnosticsError):
    """A video file cannot give the frames that were asked for."""


class MissingVideoError(VideoError):
    """There is no such file."""


class EmptyVideoError(VideoError):
    """The file holds zero bytes."""


class NoVideoStreamError(VideoError):
    """The file opens but holds no video stream (an audio file, a page of HTML)."""


class TruncatedVideoError(VideoError):
    """The file ends before its header or its data does."""


class DamagedVideoError(VideoError):
    """A wanted frame cannot be decoded: the data around it is damaged."""


class FrameCountError(VideoError):
    """A frame index was asked for that the file does not hold."""


class InexactReaderError(VideoError):
    """The chosen reader is known, or was seen, to return other frames than those asked for."""


class ReaderTimeoutError(VideoError):
    """The reader did not answer in time and was killed."""


class ReaderCrashError(VideoError):
    """The reading process died (a fault in native code, or killed for memory)."""


class ModelError(DiagnosticsError):
    """The model cannot take this input, or cannot be observed."""


class PromptTooLongError(ModelError):
    """The prompt has more tokens than the model's context."""


class ObservationError(ModelError):
    """The model's attention to this prompt cannot be captured or mapped to the video."""


class OutOfMemoryError(ModelError):
    """The device ran out of memory on this item."""


class EndpointError(ModelError):
    """A served model did not answer this item: the request was refused, or every attempt failed."""


class RunError(DiagnosticsError):
    """The run as a whole cannot start or go on."""


class CheckpointError(ModelError, RunError):
    """The checkpoint cannot be loaded: about the run, so it is not tried again for each item."""


class SharingError(ModelError, RunError):
    """Questions of one video cannot share its part of the prompt with this model: about the run, since it
    would be so for every video. Nothing falls back by itself: the person turns sharing off."""


class EndpointUnusableError(RunError):
    """A served model answers no item: the key is refused, nobody is at the address, the account is empty."""


class ConfigError(RunError):
    """A configuration key or value is wrong."""


class ScorerUnavailableError(ConfigError):
    """A relevance scorer cannot be loaded: no weights here and no network, a broken checkpoint or file."""


class ConfigurationMismatchError(RunError):
    """The output folder holds a run with another configuration."""


class LockedError(RunError):
    """Another process is writing this shard."""


class ForeignFolderError(RunError):
    """The output folder holds something that is not a run."""


class UnwritableFolderError(RunError):
    """The output folder cannot be made or written."""


class DamagedRunError(RunError):
    """A file of a run (records, manifest, tensors) is not what was written."""


class DuplicateRecordError(RunError):
    """A pair that is already finished was recorded once more."""


class IncompleteRunError(RunError):
    """The records do not hold every expected pair, once."""


class InconsistentTensorsError(ModelError):
    """The arrays of one measurement contradict each other: an axis has two lengths, rows do not sum to 1."""
