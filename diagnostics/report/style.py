"""One look for every figure: palette, sizes, plain text, and files that come out the same twice.

Figures are `matplotlib.figure.Figure` objects made inside `styled()`; no pyplot state is touched,
so a recipe may draw from any thread that draws alone. Text is never parsed as mathematics: a
question that holds `$` is shown with its `$`.
"""

from __future__ import annotations

import bisect
import math
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

__all__ = [
    "FIGURE_WIDTH",
    "LINE_INCHES",
    "MAX_RUNS",
    "STEP_COLORS",
    "RunStyle",
    "bar_look",
    "between",
    "clock",
    "counted",
    "estimated",
    "most_items",
    "plain_text",
    "run_style",
    "save_figure",
    "styled",
    "wrapped",
]

FIGURE_WIDTH = 7.0
"""Inches: the width of a two-column page, so that 8 pt in the figure is 8 pt in print."""

_FONT_POINTS = 8.0

LINE_INCHES = _FONT_POINTS * 1.35 / 72
"""Height of one line of text, for reserving room below the panels."""

_STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.labelsize": _FONT_POINTS,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 9.0,
    "axes.titleweight": "bold",
    "figure.dpi": 200,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": _FONT_POINTS,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.5,
    "hatch.linewidth": 0.6,
    "legend.fontsize": _FONT_POINTS,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "pdf.fonttype": 42,
    "savefig.dpi": 200,
    "svg.fonttype": "none",
    "text.parse_math": False,
    "text.usetex": False,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
}


class RunStyle(NamedTuple):
    """How one run is drawn; the marker repeats what the colour says."""

    color: str
    marker: str


# Okabe & Ito, "Color Universal Design" (2008), without its yellow, which is too pale for lines on white.
_RUN_STYLES = (
    RunStyle("#0072B2", "o"),
    RunStyle("#D55E00", "s"),
    RunStyle("#009E73", "^"),
    RunStyle("#CC79A7", "D"),
    RunStyle("#E69F00", "v"),
    RunStyle("#56B4E9", "P"),
    RunStyle("#000000", "X"),
)

MAX_RUNS = len(_RUN_STYLES)
"""How many runs one figure can tell apart."""


STEP_COLORS = ("#d9d9d9", "#E69F00", "#D55E00", "#00436b")
"""Of parts stacked in a fixed order: each is darker than the one before it, in grey too."""

_HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "oooo", "++++")


def run_style(position: int) -> RunStyle:
    """Colour and marker of the series at `position`; past `MAX_RUNS` colours come back with other markers."""
    turn, place = divmod(position, MAX_RUNS)
    return RunStyle(_RUN_STYLES[place].color, _RUN_STYLES[(place + turn) % MAX_RUNS].marker)


def bar_look(position: int) -> dict[str, Any]:
    """Arguments for the bars of the series at `position`: its colour, and a hatch that repeats it in grey."""
    return {
        "facecolor": run_style(position).color,
        "edgecolor": "white",
        "hatch": _HATCHES[position % len(_HATCHES)],
        "linewidth": 0.0,
    }


@contextmanager
def styled() -> Iterator[None]:
    """Matplotlib's settings for everything created or saved inside the block."""
    with mpl.rc_context():
        # The person's own matplotlibrc must not change published figures: begin from the defaults.
        mpl.rcdefaults()
        for name, value in _STYLE.items():
            mpl.rcParams[name] = value
        yield


def plain_text(text: str) -> str:
    """`text` on one line, without control and formatting characters; empty text becomes "(empty)"."""
    kept = (" " if unicodedata.category(c)[0] == "Z" or c in "\t\n\r\v\f" else c for c in text)
    visible = "".join(c for c in kept if unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co"))
    return " ".join(visible.split()) or "(empty)"


def wrapped(text: str, inches: float, points: float, max_lines: int | None = None) -> str:
    """`plain_text` in lines no wider than `inches` at a size of `points`, measured in the figures' font.

    Words wider than a line are broken; what is left after `max_lines` becomes an ellipsis.
    """
    lines: list[str] = []
    rest = plain_text(text)
    while rest:
        last = max_lines is not None and len(lines) + 1 == max_lines
        whole = _fits(rest, inches, points)
        if whole == len(rest):
            return "\n".join([*lines, rest])
        room = _fits(rest, inches - (0.02 * points if last else 0.0), points)
        cut = rest.rfind(" ", 0, room + 1)
        cut = cut if cut > 0 else max(room, 1)
        lines.append(rest[:cut].rstrip() + (" …" if last else ""))
        if last:
            break
        rest = rest[cut:].lstrip()
    return "\n".join(lines)


def _fits(text: str, inches: float, points: float) -> int:
    """How many leading characters of `text` are no wider than `inches`."""
    font = FontProperties(family="DejaVu Sans", size=points)

    def wide(count: int) -> bool:
        # A space at the end has no ink; its width is that of the line without it.
        return text_to_path.get_text_width_height_descent(text[:count], font, ismath=False)[0] > 72 * inches

    # No font has glyphs thinner than a twentieth of its size: longer prefixes need not be measured.
    longest = min(len(text), int(72 * inches * 20 / points))
    return bisect.bisect_left(range(1, longest + 1), True, key=wide)


def counted(number: int, noun: str) -> str:
    """`1 item`, `2 items`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def most_items(counts: Iterable[float]) -> str:
    """The largest of the numbers of items behind a figure's values, in words."""
    return counted(int(max(counts, default=0)), "item")


def between(low: float, high: float, form: str) -> str:
    """An interval in words, each end by `form`; "no interval" where an end is undefined."""
    return f"{low:{form}} to {high:{form}}" if math.isfinite(low) and math.isfinite(high) else "no interval"


def estimated(value: float, low: float, high: float, *, form: str, unit: str = "") -> str:
    """A number with its interval in words: `+0.21 (+0.10 to +0.32)`, or that it is undefined."""
    return (
        f"{value:{form}}{unit} ({between(low, high, form)})"
        if math.isfinite(value)
        else "an undefined amount"
    )


def clock(seconds: float, full: bool = False) -> str:
    """Time as `mm:ss`, or `h:mm:ss` from one hour on or where asked; "no time" where it is undefined."""
    if not seconds >= 0:
        return "no time"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours or full else f"{minutes:02}:{rest:02}"


def save_figure(figure: Figure, path_stem: str | Path) -> list[Path]:
    """Write `figure` as `<path_stem>.png` (200 dpi) and `<path_stem>.pdf` (fonts embedded as text).

    No date, version or random number goes into the files: the same figure gives the same bytes.
    Each file appears whole or not at all. The figure's layout is then fixed.

    Returns:
        The two paths, PNG first. Missing folders are made.
    """
    stem = Path(path_stem)
    stem.parent.mkdir(parents=True, exist_ok=True)
    no_origin = {
        "png": {"Software": None},
        "pdf": {"Creator": None, "Producer": None, "CreationDate": None},
    }
    written = []
    for suffix, metadata in no_origin.items():
        path = stem.parent / f"{stem.name}.{suffix}"
        unfinished = stem.parent / f".{stem.name}.{suffix}.tmp"
        with styled():
            figure.savefig(unfinished, format=suffix, metadata=metadata)
        # Laid out once: both files show the same, and a third of the time is saved.
        figure.set_layout_engine("none")
        written.append(unfinished.replace(path))
    return written
