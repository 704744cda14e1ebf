"""What a source data set says of one video, and how a reader of one offers it.

A reader is one module of this package with a constant `SOURCE`. It knows the published layout of its
annotation files, resolves their time base, and gives annotation tracks of the construction pipeline
(`diagnostics.data.build.annotations`); it opens no video and knows nothing of questions.
"""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from diagnostics.data.build.annotations import Lesion, Track

__all__ = ["Annotated", "Base", "Clip", "Source", "SourceFile", "plain"]

Base = Literal["seconds", "frames"]
"""What an annotation's numbers count: seconds of the source's video, or frames of it."""


def plain(text: str) -> str:
    """`text` without case, spaces and punctuation: how names of labels and data sets are compared."""
    return re.sub(r"[^a-z0-9]", "", text.casefold())


@dataclass(frozen=True, slots=True)
class SourceFile:
    """What was read: the path of an annotation file, or of a folder of them, and a SHA-256.

    Attributes:
        sha256: of the file's bytes; of a folder, of the list of its files (`of_folder`).
    """

    path: Path
    sha256: str

    @classmethod
    def of(cls, path: Path) -> SourceFile:
        """The file at `path`, hashed."""
        with path.open("rb") as stream:
            return cls(path, hashlib.file_digest(stream, "sha256").hexdigest())

    @classmethod
    def of_folder(cls, path: Path, hashes: Mapping[str, str]) -> SourceFile:
        """Tens of thousands of files of one folder under one hash, since an audit with a line a frame would
        help nobody: that of the lines `sha256sum *` prints in the folder, sorted by name as in the C locale.

        Args:
            hashes: SHA-256 of each file by its name.
        """
        lines = (f"{hashes[name]}  {name}\n" for name in sorted(hashes))
        return cls(path, hashlib.sha256("".join(lines).encode()).hexdigest())


@dataclass(frozen=True, slots=True)
class Clip:
    """The benchmark's own video file, as its record tells.

    Given to a reader whose files leave their time base open (is a row's number a second or a frame?): it
    takes the one that fits, and says so.
    """

    n_frames: int
    fps: float
    seconds: float


@dataclass(frozen=True)
class Annotated:
    """What a source says of one of its videos.

    Attributes:
        source: `Source.name`.
        stem: the source's own name of the video.
        base: what the numbers of `tracks` and `lesions` count. Both are half-open and start at 0 with the
            video's first frame.
        time_base: in a sentence, how the files' numbers became these.
        tracks: `phases`, `steps`, `regions`, `instruments`, by name; those that the source has.
        lesions: each with its stretches; attributes `site`, `histology`, `size` where they are known.
        unseen: ids of lesions that the files know of and show nowhere.
        labels: of the whole video (a bowel preparation score, a contraction).
        files: what was read.
        label_version: which release of the labels, as far as the files tell.
        seconds, n_frames, fps: of the annotated video, those that the files tell; a record of the benchmark
            that disagrees is refused.
        whole: `seconds` and `n_frames` are the video's. False where they are those of its labelled part: the
            video is at least as long.
        spacing: by track, how far apart its labelled moments lie, in `base`, where it is not labelled
            throughout: what such a track says about a moment is approximate.
        warnings: what in the files was dropped or doubtful, each with its place.
    """

    source: str
    stem: str
    base: Base
    time_base: str
    tracks: Mapping[str, Track] = field(default_factory=dict)
    lesions: tuple[Lesion, ...] = ()
    unseen: tuple[str, ...] = ()
    labels: Mapping[str, str | float] = field(default_factory=dict)
    files: tuple[SourceFile, ...] = ()
    label_version: str = ""
    seconds: float | None = None
    n_frames: int | None = None
    fps: float | None = None
    whole: bool = True
    spacing: Mapping[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


class Source(ABC):
    """One source data set: where its annotations lie and how they are read.

    Attributes:
        name: as the paper writes it.
        datasets: how a record's `dataset` may call it (compared by `plain`).
        aliases: by track, other wordings of a label (compared by `plain`) and the label they mean; the labels
            themselves need no entry.
    """

    name: str
    datasets: tuple[str, ...]
    aliases: Mapping[str, Mapping[str, str]]

    @abstractmethod
    def stem(self, video: str) -> str | None:
        """The source's name of the video that a benchmark calls `video` (a file's stem); None for no such."""

    @abstractmethod
    def find(self, root: Path) -> Mapping[str, tuple[Path, ...]]:
        """The annotated videos below `root` by stem, each with the files that speak of it; two files that
        claim the same track of one stem are both listed.

        Raises:
            DataFileError: nothing of this source's layout lies there.
        """

    @abstractmethod
    def read(self, root: Path, stem: str, clip: Clip | None = None) -> Annotated:
        """What the files say of one video.

        Args:
            clip: the benchmark's video, for a reader that has to choose between two time bases.

        Raises:
            DataFileError: a file is missing, not of its form, claims the stem twice.
            UnknownLabelError: its labels are of another version than the reader's label list.
        """

    def label(self, track: str, written: str) -> str:
        """The source's own label that `written` means; `written` itself where no alias knows it."""
        known = {plain(alias): label for alias, label in self.aliases.get(track, {}).items()}
        return known.get(plain(written), written)
