"""The sources' annotation files on this disk: where they lie, and what they say of a video, read once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from diagnostics.data.paths import existing_folder
from diagnostics.data.sources._source import Annotated, Clip, Source, plain
from diagnostics.data.sources.reasons import (
    NoSourceFolderError,
    NotAnnotatedError,
    SourceUnreadableError,
    UnderivableError,
)
from diagnostics.errors import ConfigError, DataFileError, DiagnosticsError
from diagnostics.strict import near_match

__all__ = ["Archive", "find_archives"]


class Archive:
    """One source's files.

    Args:
        key: the reader's name.
        source: the reader.
        folder: where its files lie; None where nobody knows.
        absent: why there is no folder.
    """

    def __init__(self, key: str, source: Source, folder: Path | None, absent: str = "") -> None:
        self.key, self.source, self.folder, self.absent = key, source, folder, absent
        self._found: Mapping[str, tuple[Path, ...]] | None = None
        self._read: dict[tuple[str, Clip | None], Annotated | UnderivableError] = {}

    def annotated(self, video: str, clip: Clip | None) -> Annotated:
        """What the source says of the video that the benchmark calls `video` (a file's stem).

        Args:
            clip: that video, as its record tells; None where the record is not complete.

        Raises:
            NoSourceFolderError: its folder is not there.
            NotAnnotatedError: it has no such video.
            SourceUnreadableError: its files cannot be read.
        """
        if (video, clip) not in self._read:
            self._read[video, clip] = self._look_up(video, clip)
        known = self._read[video, clip]
        if isinstance(known, UnderivableError):
            raise known.about("")  # a copy: it will be said of several items
        return known

    def _look_up(self, video: str, clip: Clip | None) -> Annotated | UnderivableError:
        if self.folder is None:
            return NoSourceFolderError(
                self.absent, remedy=f"Put it below exp.root, or name it with exp.folders.{self.key}=DIR."
            )
        stem = self.source.stem(video)
        try:
            if self._found is None:
                self._found = self.source.find(self.folder)
            if stem is None or stem not in self._found:
                return self._not_annotated(video, stem)
            return self.source.read(self.folder, stem, clip)
        except UnderivableError as error:
            return error
        except DiagnosticsError as error:
            return _unreadable(error)
        except OSError as error:  # a link to nothing, a folder or a file without the right to read it
            return SourceUnreadableError(
                f"Files of {self.source.name} cannot be read: {error}.",
                remedy="Download them again, or allow reading them.",
                path=self.folder,
            )

    def _not_annotated(self, video: str, stem: str | None) -> NotAnnotatedError:
        told = f"{self.source.name} has no video named like {video!r}."
        if stem is not None:
            hint = near_match(stem, list(self._found or ()))
            told = f"{self.source.name} has no annotation of {stem!r}. {hint}"
        return NotAnnotatedError(
            told, remedy="Download the source whole, or leave the item.", path=self.folder
        )


def _unreadable(error: DiagnosticsError) -> SourceUnreadableError:
    return SourceUnreadableError(error.problem, remedy=error.remedy, path=error.path)


def find_archives(
    sources: Mapping[str, Source], root: Path | None, folders: Mapping[str, str | None]
) -> dict[str, Archive]:
    """Each source with its folder, or with why it has none.

    A folder directly below `root` is a source's if its name is the reader's, the paper's or one of the data
    set's names, whatever its case, spaces and punctuation.

    Args:
        sources: the readers by name.
        root: the folder of all of them; None where each is named.
        folders: those that lie elsewhere, by reader.

    Raises:
        ConfigError: a folder is named for no reader, or nothing is named at all.
        DataFileError: a folder that was named is not there, or `root` holds no source at all.
    """
    for key in folders:
        if key not in sources:
            raise ConfigError(f"There is no source {key!r}.", remedy=near_match(key, list(sources)))
    named = {key: Path(folder) for key, folder in folders.items() if folder is not None}
    if root is None and not named:
        raise ConfigError(
            "Nothing says where the sources' annotations are.",
            remedy="Give exp.root=DIR, a folder with one folder a source.",
        )
    root = None if root is None else existing_folder(root, what="folder of the sources (exp.root)")
    archives = {}
    for key, source in sources.items():
        if key in named:
            folder = existing_folder(named[key], what=f"folder of {source.name} (exp.folders.{key})")
            archives[key] = Archive(key, source, folder)
        else:
            archives[key] = _below(root, key, source)
    if root is not None and not any(archive.folder for archive in archives.values()):
        names = ", ".join(sources)
        raise DataFileError(
            "The folder holds none of the sources.", remedy=f"Its folders are called {names}.", path=root
        )
    return archives


def _below(root: Path | None, key: str, source: Source) -> Archive:
    if root is None:
        return Archive(key, source, None, f"No folder was named for {source.name}.")
    names = {plain(name) for name in (key, source.name, *source.datasets)}
    found = sorted(entry for entry in root.iterdir() if entry.is_dir() and plain(entry.name) in names)
    if len(found) == 1:
        return Archive(key, source, found[0])
    if found:
        both = " and ".join(entry.name for entry in found)
        return Archive(key, source, None, f"Two folders could be {source.name}: {both}.")
    return Archive(key, source, None, f"There is no folder of {source.name} in {root}.")
