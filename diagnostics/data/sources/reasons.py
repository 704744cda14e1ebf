"""Why no evidence window can be derived for an item: the reasons that the audit names and counts."""

from __future__ import annotations

from pathlib import Path

from diagnostics.data.verify import Problem
from diagnostics.errors import ItemError

__all__ = [
    "AmbiguousSourceError",
    "DurationsDisagreeError",
    "GoldLabelUnknownError",
    "NoSourceFolderError",
    "NotAnnotatedError",
    "NothingLabelledError",
    "RecordIncompleteError",
    "SourceUnknownError",
    "SourceUnreadableError",
    "SubjectUnreadError",
    "UnderivableError",
    "WindowUnreadError",
]


class UnderivableError(ItemError):
    """No evidence window can be derived for the item.

    Attributes:
        warnings: what else the audit should say of it.
    """

    warnings: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The reason in a few words, to count by: `durations disagree`."""
        return Problem.of(self).kind


class SourceUnknownError(UnderivableError):
    """Neither the record's data set nor its video's name belongs to a known source."""


class AmbiguousSourceError(UnderivableError):
    """Two sources claim the item's video."""


class NoSourceFolderError(UnderivableError):
    """The source's folder is not there."""


class SourceUnreadableError(UnderivableError):
    """The source's files are not of its form, contradict each other, or are of another label version."""


class NotAnnotatedError(UnderivableError):
    """The source has no annotation of this video."""


class RecordIncompleteError(UnderivableError):
    """The record lacks what turns times into frames."""


class DurationsDisagreeError(UnderivableError):
    """The annotated video and the benchmark's are not equally long."""


class WindowUnreadError(UnderivableError):
    """The question's time window cannot be read.

    Args:
        why: as `windows.Unread` says it; `none` where the words name no time at all.
    """

    def __init__(
        self,
        problem: str,
        *,
        remedy: str,
        item_id: str | None = None,
        path: str | Path | None = None,
        why: str = "",
    ) -> None:
        super().__init__(problem, remedy=remedy, item_id=item_id, path=path)
        self.why = why


class SubjectUnreadError(UnderivableError):
    """The lesion or the phase that the question is about cannot be told."""


class NothingLabelledError(UnderivableError):
    """The source labels nothing where the question looks."""


class GoldLabelUnknownError(UnderivableError):
    """The right option is none of the source's labels in this video."""
