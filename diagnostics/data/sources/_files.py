"""Where annotation files lie below a source's folder, and their rows as tables."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Int

from diagnostics.data.paths import existing_folder
from diagnostics.data.sources._source import plain
from diagnostics.errors import DataFileError
from diagnostics.strict import near_match

__all__ = ["annotation_files", "integers", "numbered", "only", "table", "unlisted", "with_layout"]

_CROWDED = re.compile(
    r"^\.|^\d{1,3}$|frames|^recording_|^images?$|^segmentations$|^\d{3}-\d{3}_", re.IGNORECASE
)
"""Folders that hold one file a frame, or a repository's own: no annotation table lies in them."""

_DEEPEST = 6

_HIGHEST = 2**31 - 1
"""Of a frame's number: at 60 a second these would be over a year."""

_SCENES = "surgery|endoscopy|colonoscopy|ultrasound"
"""Kinds of scene: the names of MedHorizon's published samples begin with one (`surgery_tmvp_079`)."""


def annotation_files(root: Path, *, crowded: re.Pattern[str] = _CROWDED) -> Iterator[Path]:
    """Files below `root` by path, some levels down, without entering folders of one file a frame.

    Raises:
        DataFileError: `root` is no folder.
        OSError: a folder cannot be read: what lies in it would be missed in silence.
    """
    root = existing_folder(root, what="folder of the annotations")
    for folder, inside, names in os.walk(root, onerror=unlisted):
        here = Path(folder)
        deep = len(here.relative_to(root).parts) >= _DEEPEST
        inside[:] = [] if deep else sorted(name for name in inside if not crowded.search(name))
        yield from (here / name for name in sorted(names) if not name.startswith("."))


def unlisted(error: OSError) -> None:
    """For `os.walk`, which passes over a folder that cannot be listed.

    Raises:
        OSError: always.
    """
    raise error


def with_layout(found: Mapping[str, Iterable[Path]], root: Path, layout: str) -> dict[str, tuple[Path, ...]]:
    """`found` in order of its stems.

    Args:
        layout: what the source's files are called, for the message.

    Raises:
        DataFileError: it is empty.
    """
    if not found:
        raise DataFileError("No annotation file lies here.", remedy=f"Put there {layout}.", path=root)
    return {stem: tuple(found[stem]) for stem in sorted(found)}


def only(paths: Sequence[Path], what: str, root: Path) -> Path:
    """The one file that says something.

    Raises:
        DataFileError: there is none, or several claim it.
    """
    if not paths:
        raise DataFileError(f"There is no file of {what}.", remedy="Download the source whole.", path=root)
    if len(paths) > 1:
        both = " and ".join(str(path.relative_to(root)) for path in paths)
        raise DataFileError(
            f"Several files claim {what}: {both}.", remedy="Keep one release below the folder.", path=root
        )
    return paths[0]


def numbered(video: str, words: str, highest: int) -> int | None:
    """The number of a video whose name is a number, alone or after some of the `words`; else None.

    Args:
        words: an alternation of what may stand before it, as a regular expression.
        highest: of the source's numbers, which begin at 1.
    """
    match = re.fullmatch(rf"(?:(?:{_SCENES}|{words})[\W_]*)*0*([1-9]\d{{0,3}})", video.strip(), re.IGNORECASE)
    number = int(match[1]) if match else 0
    return number if 1 <= number <= highest else None


def table(
    path: Path, columns: Sequence[str], *, whitespace: bool = False, named: bool = True
) -> pd.DataFrame:
    """A text table with `columns` and whatever else it has: stripped texts, each row under its line's number.

    Bytes that are no UTF-8 are read as U+FFFD: published files have broken cells in columns of no interest,
    and a broken label is refused where labels are looked up.

    Args:
        columns: names that the header must have, compared by `plain`; they name the result's columns.
        whitespace: cells are separated by spaces or tabs, not commas.
        named: the header names the columns. If not, its line is skipped unread, and the cells must be as many
            as `columns`.

    Raises:
        DataFileError: the file is empty, has rows of too many cells, or lacks a column.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # of cells cut off a row
            written = pd.read_csv(
                path,
                sep=r"\s+" if whitespace else ",",
                header=None,  # pandas renames a column that is there twice
                skiprows=0 if named else 1,
                dtype=str,
                keep_default_na=False,
                na_filter=False,
                index_col=False,
                skip_blank_lines=False,
                skipinitialspace=True,
                encoding="utf-8-sig",
                encoding_errors="replace",
            )
    except (ValueError, pd.errors.ParserWarning) as error:  # pandas' errors are ValueErrors
        raise DataFileError(
            f"The file is no table of {', '.join(columns)}: {error}.", remedy="Download it again.", path=path
        ) from error
    written = written.fillna("")
    written.index = pd.RangeIndex(1 if named else 2, len(written) + (1 if named else 2))
    if named:
        names = _renamed(path, list(written.iloc[0]), columns)
        written = written.iloc[1:]
    elif len(written.columns) == len(columns):
        names = list(columns)
    else:
        raise DataFileError(
            f"The rows have {len(written.columns)} cells.",
            remedy=f"{len(columns)} are expected: {', '.join(columns)}.",
            path=path,
        )
    written.columns = pd.Index(names)
    written = written.apply(lambda cells: cells.str.strip())
    written = written[(written != "").any(axis=1)]
    if written.empty:
        raise DataFileError("The file has no rows.", remedy="Download it again.", path=path)
    return written


def _renamed(path: Path, written: list[str], columns: Sequence[str]) -> list[str]:
    wanted = {plain(name): name for name in columns}
    names = [wanted.get(plain(name), name.strip()) for name in written]
    for name in columns:
        if names.count(name) != 1:
            problem = f"There is no column {name!r}." if name not in names else f"Two columns are {name!r}."
            raise DataFileError(problem, remedy=near_match(name, names), path=path)
    return names


def integers(written: pd.DataFrame, column: str, path: Path) -> Int[np.ndarray, " row"]:
    """A column's whole numbers, not below 0 (`12` and `12.0` are taken).

    Raises:
        DataFileError: a cell is none; its line is named.
    """
    numbers = pd.to_numeric(written[column], errors="coerce").to_numpy(dtype=float)
    bad = ~np.isfinite(numbers) | (numbers != np.floor(numbers)) | (numbers < 0) | (numbers > _HIGHEST)
    if bad.any():
        place = int(np.argmax(bad))
        raise DataFileError(
            f"Line {written.index[place]}: {column!r} is {written[column].iloc[place]!r}, "
            f"not a whole number from 0 to {_HIGHEST}.",
            remedy="Download the file again.",
            path=path,
        )
    return numbers.astype(int)
