"""Why a row, a procedure or a candidate question was dropped: each reason its own type.

The type's name is what funnel and audit file count by. A reason is an error like every other of the
toolkit: it says what is wrong with which value, and what a person can do about it.
"""

from __future__ import annotations

from diagnostics.errors import ItemError

__all__ = [
    "AmbiguousSubjectError",
    "AnswerMissingError",
    "BadRowError",
    "ConflictingRowError",
    "DoubtfulAnnotationError",
    "DuplicateQuestionError",
    "IgnoredLabelError",
    "IncompatibleLabelsError",
    "LabelSpaceTooSmallError",
    "LengthMismatchError",
    "MalformedTextError",
    "NearBorderError",
    "NoFrameError",
    "NothingToCompareError",
    "OptionsNotUniqueError",
    "OverQuotaError",
    "OverlappingRowsError",
    "PartlyLabelledError",
    "PastEndError",
    "RejectedByReviewerError",
    "Rejection",
    "ReversedIntervalError",
    "RewriteRefusedError",
    "SeveralRightOptionsError",
    "StaleReviewError",
    "SubjectNotAskedError",
    "UnknownLabelError",
    "WindowOutsideVideoError",
]


class Rejection(ItemError):
    """Base of the reasons below."""


class BadRowError(Rejection):
    """An annotation row is not written as its format says."""


class ReversedIntervalError(Rejection):
    """An annotation row ends before, or when, it begins."""


class OverlappingRowsError(Rejection):
    """Two rows of a track that holds one label at a time share a stretch of time."""


class UnknownLabelError(Rejection):
    """A row's label is not in the declared label space."""


class PastEndError(Rejection):
    """A row lies outside its video: before its beginning or past its end."""


class ConflictingRowError(Rejection):
    """Two rows say different things of what can only be one."""


class LengthMismatchError(Rejection):
    """The video's length, frame count or rate is not the annotated one."""


class WindowOutsideVideoError(Rejection):
    """The time window asked about begins before or ends after the video."""


class DoubtfulAnnotationError(Rejection):
    """The question rests on a track of which a row was dropped, so its answer may be another."""


class AmbiguousSubjectError(Rejection):
    """What the question names could be two things."""


class IncompatibleLabelsError(Rejection):
    """The window holds several labels, so that none is the answer."""


class PartlyLabelledError(Rejection):
    """The answer's label covers too little of the window."""


class NearBorderError(Rejection):
    """The window comes nearer to where its label begins or ends than the configuration allows."""


class NothingToCompareError(Rejection):
    """The question compares several things, and there is only one: the largest of one lesion."""


class SubjectNotAskedError(Rejection):
    """The configuration asks about other subjects than this one."""


class AnswerMissingError(Rejection):
    """The annotations give no answer."""


class IgnoredLabelError(Rejection):
    """The answer is a label that the configuration never asks about."""


class NoFrameError(Rejection):
    """The evidence lies between two frames: no frame shows it."""


class OverQuotaError(Rejection):
    """Enough questions of this task, of this task on this procedure, or on this procedure are kept."""


class LabelSpaceTooSmallError(Rejection):
    """There are too few labels that could be wrong options."""


class OptionsNotUniqueError(Rejection):
    """Two options read the same."""


class SeveralRightOptionsError(Rejection):
    """More than one option is right."""


class DuplicateQuestionError(Rejection):
    """The same question is asked of the same video twice."""


class MalformedTextError(Rejection):
    """A question or an option is empty, too long, or holds characters that a prompt must not hold."""


class RewriteRefusedError(Rejection):
    """A rewritten question lost a name or a time, or gained an option: the original text stays."""


class RejectedByReviewerError(Rejection):
    """A person said no."""


class StaleReviewError(Rejection):
    """A reviewer's verdict was given on another text than the item now has."""
