"""What holds of every experiment's figure: named axes, intervals, readable text, the table's numbers."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from typing import TypeVar

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PolyCollection, QuadMesh
from matplotlib.colors import to_rgb
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from matplotlib.ticker import PercentFormatter
from scipy.spatial import cKDTree

import diagnostics.report
from diagnostics.report.style import MAX_RUNS, STEP_COLORS, run_style, styled

from . import figure_cases
from .figure_cases import CASES, Kind
from .test_drift import overlapping

FROM_CURVES = {"two_panel_figure", "time_figure", "comparison_figure", "item_attention_figure"}
"""Figures of attention drift: `test_drift.py`, `test_item.py`."""

CAPS = ("|", "_")
"""Marks at the ends of intervals; the strokes of chance too."""

SMALLEST = 6.5
"""Points, at the width of a page."""


Kin = TypeVar("Kin", bound=Artist)


@cache
def case(name: str, kind: Kind) -> tuple[Figure, np.ndarray]:
    return CASES[name](kind)


@cache
def artists(figure: Figure) -> list[Artist]:
    """All that a figure is made of: matplotlib takes long to walk through it."""
    return figure.findobj()


@pytest.fixture(scope="module", autouse=True)
def figures_of_this_module() -> Iterator[None]:
    """Figures are shared by the tests here, and kept no longer."""
    yield
    artists.cache_clear()
    case.cache_clear()


def parts(figure: Figure, kin: type[Kin]) -> list[Kin]:
    return [artist for artist in artists(figure) if isinstance(artist, kin)]


def words(figure: Figure) -> str:
    return " ".join(" ".join(text.get_text() for text in parts(figure, Text)).split())


def panels(figure: Figure) -> list[Axes]:
    """The axes with data: neither empty places nor scales of colours."""
    return [
        axes
        for axes in parts(figure, Axes)
        if axes.axison and axes.get_visible() and axes.get_label() != "<colorbar>"
    ]


def ends(figure: Figure) -> np.ndarray:
    """Every stretch that was drawn, as (low, high): bars of errors, lines between two points, bands."""
    found = [
        np.sort(np.asarray(segment)[:, along])
        for lines in parts(figure, LineCollection)
        for segment in lines.get_segments()
        if len(segment) == 2
        for along in (0, 1)
    ]
    found += [
        np.sort(data[:, along])
        for line in parts(figure, Line2D)
        if len(data := np.asarray(line.get_xydata(), dtype=float)) == 2
        for along in (0, 1)
    ]
    for shade in parts(figure, PolyCollection):
        for path in () if isinstance(shade, QuadMesh) else shade.get_paths():
            for at in np.unique(path.vertices[:, 0]):
                heights = path.vertices[path.vertices[:, 0] == at, 1]
                found.append(np.array([heights.min(), heights.max()]))
    pairs = np.array([pair for pair in found if np.isfinite(pair).all()]).reshape(-1, 2)
    return pairs[np.ptp(pairs, axis=1) > 1e-12]


def numbers(figure: Figure) -> np.ndarray:
    """Every number that was drawn: of points, lengths of bars, cells of maps."""
    found = [np.asarray(line.get_xydata(), dtype=float).ravel() for line in parts(figure, Line2D)]
    found += [np.array([bar.get_width(), bar.get_height()]) for bar in parts(figure, Rectangle)]
    found += [np.ma.getdata(image.get_array()).ravel() for image in parts(figure, AxesImage)]
    every = np.concatenate(found)
    return every[np.isfinite(every)]


def is_grey(colour: object) -> bool:
    return float(np.ptp(to_rgb(colour))) < 1e-6


def luminance(colour: object) -> float:
    return float(np.dot(to_rgb(colour), [0.2126, 0.7152, 0.0722]))


def test_every_figure_that_can_be_drawn_has_a_case() -> None:
    modules = [
        importlib.import_module(f"diagnostics.report.{module.name}")
        for module in pkgutil.iter_modules(diagnostics.report.__path__)
        if not module.ispkg
    ]
    drawers = {name for module in modules for name in module.__all__ if name.endswith("_figure")}
    cased = {name for name in vars(figure_cases) if name.endswith("_figure")}
    assert drawers - {"save_figure"} | {"validation_figure"} == cased | FROM_CURVES


def test_the_style_keeps_text_editable_and_prints_at_200_dpi() -> None:
    with styled():
        told = [mpl.rcParams[name] for name in ("pdf.fonttype", "svg.fonttype", "savefig.dpi", "text.usetex")]
    assert told == [42, "none", 200, False]


@pytest.mark.parametrize("name", CASES)
def test_what_is_drawn_is_the_table(name: str) -> None:
    figure, told = case(name, "crowded")
    values = told[np.isfinite(told[:, 0])]
    distance, _ = cKDTree(numbers(figure)[:, None]).query(values[:, :1])
    assert distance.max() < 1e-9, f"not drawn: {values[distance.argmax()]}"
    known = values[np.isfinite(values).all(axis=1)]
    if not len(known):
        return
    distance, _ = cKDTree(ends(figure)).query(known[:, 1:])
    assert distance.max() < 1e-9, f"interval not drawn: {known[distance.argmax()]}"
    named = re.search(r"95% interval|interval, videos resampled \(95%", words(figure))
    assert named, "the interval is not named"


@pytest.mark.parametrize("name", CASES)
def test_without_intervals_nothing_looks_like_one(name: str) -> None:
    figure, _ = case(name, "one")
    segments = [segment for lines in parts(figure, LineCollection) for segment in lines.get_segments()]
    assert not any(np.isfinite(segment).all() for segment in segments if len(segment))
    caps = [
        line for line in parts(figure, Line2D) if line.get_marker() in CAPS and line.get_gid() != "chance"
    ]
    assert not any(np.isfinite(np.asarray(cap.get_xydata(), dtype=float)).all(axis=1).any() for cap in caps)
    assert not any(
        len(path.vertices) for shade in parts(figure, PolyCollection) for path in shade.get_paths()
    )
    assert not re.search(r"\bnan\b|\b1 items|\b1 questions", words(figure)), words(figure)


# Without any ratio there is no figure of sparsity.
@pytest.mark.parametrize("name", sorted(CASES.keys() - {"evidence_sparsity"}))
def test_what_is_undefined_is_not_a_reason_to_lose_the_run(name: str) -> None:
    figure, told = case(name, "undefined")
    assert np.isnan(told[:, 1:]).all()
    assert not re.search(r"\bnan\b", words(figure)), words(figure)


@pytest.mark.parametrize("name", CASES)
def test_every_axis_is_named_with_its_unit(name: str) -> None:
    figure, _ = case(name, "crowded")
    shown = panels(figure)
    for axes in shown:
        place = axes.get_subplotspec()
        for which, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
            label = axis.get_label_text()
            if not label:  # the outermost panel of its column or row says it for all of them
                beside = [
                    getattr(other, f"{which}axis").get_label_text()
                    for other in shown
                    if (spot := other.get_subplotspec()).get_gridspec() is place.get_gridspec()
                    and (spot.colspan if which == "x" else spot.rowspan)
                    == (place.colspan if which == "x" else place.rowspan)
                ]
                label = next(filter(None, beside), "")
            assert label, f"{axes.get_title(loc='left')}: {which} has no name"
            if isinstance(axis.get_major_formatter(), PercentFormatter):
                assert "(%" in label, label
            assert "nats" not in label or "(nats)" in label
    scales = [axes for axes in parts(figure, Axes) if axes.get_label() == "<colorbar>"]
    assert all(scale.get_ylabel() for scale in scales)
    assert len(scales) == len(parts(figure, AxesImage))


@pytest.mark.parametrize("name", CASES)
def test_series_are_told_apart_without_their_colours(name: str) -> None:
    figure, _ = case(name, "crowded")
    palette = {run_style(place).color.lower() for place in range(MAX_RUNS)} | {
        one.lower() for one in STEP_COLORS
    }
    for axes in panels(figure):
        looks: dict[tuple[str, str, float], str] = {}
        for line in axes.lines:
            if line.get_marker() in CAPS:
                continue
            colour = mpl.colors.to_hex(line.get_color())
            assert is_grey(colour) or colour in palette, f"{colour} is not of the style"
            if line.get_gid() and len(line.get_xydata()) > 2:
                look = (str(line.get_marker()), str(line.get_linestyle()), round(line.get_linewidth(), 3))
                assert looks.setdefault(look, colour) == colour, f"{line.get_gid()} looks like another"
        bars = [one for one in axes.containers if isinstance(one, BarContainer)]
        faces = [(one[0].get_hatch() or "", one[0].get_facecolor()) for one in bars]
        for place, (hatch, colour) in enumerate(faces):
            assert is_grey(colour) or mpl.colors.to_hex(colour) in palette
            for other, second in faces[:place]:
                if colour != second and len(bars) < 5:  # a waterfall's bars stand under each other
                    assert hatch != other or abs(luminance(colour) - luminance(second)) > 0.1


@pytest.mark.parametrize("name", CASES)
def test_text_is_readable_and_nothing_is_covered(name: str) -> None:
    figure, _ = case(name, "crowded")
    assert overlapping(figure) == []
    written = [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
    assert min(text.get_fontsize() for text in written) >= SMALLEST
    renderer = FigureCanvasAgg(figure).get_renderer()
    for axes in panels(figure):
        if (legend := axes.get_legend()) is None:
            continue
        box = legend.get_window_extent(renderer)
        points = [
            axes.transData.transform(line.get_xydata()) for line in axes.lines if len(line.get_xydata())
        ]
        covered = [point for line in points for point in line if box.contains(*point)]
        assert not covered, f"{axes.get_title(loc='left')}: the legend covers {len(covered)} points"
