"""A folder of numbered pictures, read as a video.

Some benchmarks give frames instead of films: MVBench's TVQA clips are folders `00001.jpg, 00002.jpg...` below
`frames_fps3_hq`. The rate is what the path says, `fps` and a number in the name of the folder or of one
above it; where it says nothing there are no times, and the folder is refused. The first picture is at 0 s.
"""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
from jaxtyping import Int, UInt8
from PIL import Image, UnidentifiedImageError

from diagnostics.errors import DamagedVideoError, MissingVideoError, VideoError
from diagnostics.video.index import VideoIndex

__all__ = ["CONTAINER", "is_pictures", "open_pictures", "read_pictures"]

CONTAINER = "pictures"
"""What `VideoIndex.container` is for such a folder."""

_SUFFIXES = frozenset({".jpg", ".jpeg", ".png"})
_RATE = re.compile(r"(?:^|[_\-. ])fps[_\-]?(\d+(?:\.\d+)?)(?![\d.])", re.IGNORECASE)
_LONGEST_TERM = 1001
"""Rates are read as fractions with at most this denominator: 29.97 is 2997/100."""


def is_pictures(path: str | Path) -> bool:
    """Whether `path` is a folder that holds pictures."""
    path = Path(path)
    return path.is_dir() and any(entry.suffix.lower() in _SUFFIXES for entry in path.iterdir())


def open_pictures(path: str | Path) -> VideoIndex:
    """Index a folder of pictures: one frame each, in the order of their numbers.

    Raises:
        MissingVideoError: there is no picture.
        VideoError: the path states no rate, or a file has no number or one that another has.
        DamagedVideoError: a number is left out, or the first picture cannot be opened.
    """
    path = Path(path)
    rate = _rate(path)
    files = _files(path)
    with _opened(files[0]) as first:
        width, height = first.size
        codec = str(first.format).lower()
    numbers = np.arange(len(files), dtype=np.int64)
    return VideoIndex(
        path=str(path),
        pts=numbers,
        time_base=1 / rate,
        seconds=numbers / float(rate),
        fps=float(rate),
        duration=float(len(files) / rate),
        width=width,
        height=height,
        rotation=0,
        codec=codec,
        container=CONTAINER,
        reliable=True,
        key_pts=numbers,
        key_seek=numbers,
        open_gop=False,
        header_frames=len(files),
    )


def read_pictures(
    index: VideoIndex, indices: Int[np.ndarray, " n"], out: UInt8[np.ndarray, "n height width 3"]
) -> None:
    """Fill `out` with the pictures at `indices`, scaled (bicubic) where its size is another.

    Raises:
        DamagedVideoError: a picture cannot be decoded, or is not of the first one's size.
    """
    files = _files(Path(index.path))
    height, width = out.shape[1:3]
    wanted, places = np.unique(indices, return_inverse=True)
    for rank, number in enumerate(wanted.tolist()):
        with _opened(files[number]) as image:
            if image.size != (index.width, index.height):
                raise DamagedVideoError(
                    f"its pictures change from {index.width}x{index.height} to {image.width}x{image.height}.",
                    remedy="Scale them to one size.",
                    path=files[number],
                )
            try:
                picture = image.convert("RGB")
            except OSError as error:
                raise _damaged(files[number], error) from error
        if picture.size != (width, height):
            picture = picture.resize((width, height), Image.Resampling.BICUBIC)
        out[places == rank] = np.asarray(picture)


def _rate(path: Path) -> Fraction:
    for part in reversed(path.resolve().parts):
        found = _RATE.search(part)
        if found and float(found[1]) > 0:
            return Fraction(found[1]).limit_denominator(_LONGEST_TERM)
    raise VideoError(
        "it is a folder of pictures, and its path says nothing of their rate.",
        remedy="Put it below a folder whose name has the rate in it, such as frames_fps3.",
        path=path,
    )


def _files(path: Path) -> list[Path]:
    """The pictures in order; their numbers follow one another."""
    numbered: dict[int, Path] = {}
    for file in path.iterdir():
        if file.suffix.lower() not in _SUFFIXES:
            continue
        digits = re.search(r"(\d+)$", file.stem)
        if digits is None or int(digits[1]) in numbered:
            raise VideoError(
                f"the picture {file.name} has {'no number' if digits is None else 'the number of another'}.",
                remedy="Name them by their numbers: 00001.jpg, 00002.jpg...",
                path=path,
            )
        numbered[int(digits[1])] = file
    if not numbered:
        raise MissingVideoError("it is a folder without pictures.", remedy="Unpack it again.", path=path)
    order = sorted(numbered)
    for before, after in pairwise(order):
        if after != before + 1:
            raise DamagedVideoError(
                f"picture {before + 1} of {order[0]} to {order[-1]} is not there.",
                remedy="Unpack it again.",
                path=path,
            )
    return [numbered[number] for number in order]


def _opened(path: Path) -> Image.Image:
    try:
        return Image.open(path)
    except (OSError, UnidentifiedImageError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> DamagedVideoError:
    return DamagedVideoError(
        f"this picture cannot be decoded ({error}).", remedy="Copy or download it again.", path=path
    )
