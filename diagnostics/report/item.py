"""Pictures of one item: attention over the seconds of its video, and the frames that held most of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
from einops import repeat
from jaxtyping import Bool, Float, UInt8
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, PercentFormatter
from PIL import Image

from diagnostics.report.curves import unit_cells
from diagnostics.report.footer import Footer
from diagnostics.report.style import FIGURE_WIDTH, clock, plain_text, run_style, styled, wrapped

__all__ = [
    "AttendedFrames",
    "ItemAttention",
    "contact_sheet",
    "heat_overlay",
    "item_attention_figure",
]

_LUMINANCE = np.array([0.2126, 0.7152, 0.0722])
_EVIDENCE = "#009E73"
_PRINTED_PIXELS = 320
_HEAT_MAP = "inferno"
# Little heat leaves the picture to be seen, much all but covers it.
_ALPHA_AT_ZERO, _ALPHA_AT_LARGEST = 0.15, 0.7


@dataclass(frozen=True, slots=True)
class ItemAttention:
    """One item's attention over time.

    Attributes:
        question, answer, target: the words asked, the option's letter given and the right one; None
            where there is none.
        correct: None where it cannot be said.
        unit_share: share of the video's attention that each unit holds, heads pooled.
        slot_seconds: true seconds of each unit's slots; a unit with none (synthetic) is not drawn.
        duration: seconds of the video; NaN where unknown.
        head_low, head_high: quartiles over heads of each unit's share.
        control_share: `unit_share` under the position-only control.
        evidence_windows: (start, end) seconds of what the question is about.
        is_key: which units are keyframes.
    """

    item_id: str
    question: str
    answer: str | None
    target: str | None
    correct: bool | None
    unit_share: Float[np.ndarray, " unit"]
    slot_seconds: Float[np.ndarray, "unit slot"]
    duration: float
    head_low: Float[np.ndarray, " unit"] | None = None
    head_high: Float[np.ndarray, " unit"] | None = None
    control_share: Float[np.ndarray, " unit"] | None = None
    evidence_windows: Sequence[tuple[float, float]] = ()
    is_key: Bool[np.ndarray, " unit"] | None = None


@dataclass(frozen=True, slots=True)
class AttendedFrames:
    """The most attended units of one item, most attended first.

    Attributes:
        item_id: for the title.
        thumbnails: one picture a unit.
        heat: share of the video's attention of each patch of the unit; NaN where unknown.
        shares: share of the video's attention of each unit.
        seconds: true seconds of each picture; NaN for a synthetic one.
        evidence: which of them show evidence.
    """

    item_id: str
    thumbnails: UInt8[np.ndarray, "frame height width 3"]
    heat: Sequence[Float[np.ndarray, "row col"]]
    shares: Float[np.ndarray, " frame"]
    seconds: Float[np.ndarray, " frame"]
    evidence: Bool[np.ndarray, " frame"]


def item_attention_figure(item: ItemAttention) -> Figure:
    """Attention of each unit over the seconds of the video, evidence shaded, keyframes as ticks.

    Each unit fills the stretch of time nearer to it than to another. The y axis is the unit's share
    of the video's attention; the dashed line is uniform attention.
    """
    edges, order = unit_cells(item.slot_seconds, item.duration)
    color = run_style(0).color
    with styled():
        footer = Footer([], _item_caption(item, len(order)))
        title = f"{wrapped(item.question, 6.1, 8.0, max_lines=4)}\n{_verdict(item)}"
        figure = footer.figure(panel_inches=2.4 + 0.15 * (title.count("\n") + 1))
        axes = figure.add_subplot()
        for start, end in item.evidence_windows:
            # Three seconds of two hours are thinner than a pixel: the outline keeps them in sight.
            axes.axvspan(start, end, facecolor=(_EVIDENCE, 0.2), edgecolor=(_EVIDENCE, 0.6), linewidth=0.7)
        keys: list[Line2D | Patch] = [Line2D([], [], color=color, label="heads pooled")]
        if len(order) and item.head_low is not None and item.head_high is not None:
            axes.stairs(
                item.head_high[order],
                edges,
                baseline=item.head_low[order],
                fill=True,
                color=color,
                alpha=0.2,
                linewidth=0,
                gid="heads",
            )
            keys.append(Patch(color=color, alpha=0.2, label="quartiles of heads"))
        if len(order) and item.control_share is not None and np.isfinite(item.control_share).any():
            axes.stairs(
                item.control_share[order],
                edges,
                baseline=None,
                color="#555555",
                linestyle=":",
                linewidth=1.1,
                gid="control",
            )
            keys.append(Line2D([], [], color="#555555", linestyle=":", label="position only"))
        if len(order):
            pooled, thickness = item.unit_share[order], 1.3 if len(order) <= 128 else 0.7
            axes.stairs(pooled, edges, baseline=None, color=color, linewidth=thickness, gid="attention")
        axes.axhline(1 / len(item.unit_share), color="#555555", linestyle="--", linewidth=0.8, gid="uniform")
        keys.append(Line2D([], [], color="#555555", linestyle="--", linewidth=0.8, label="uniform"))
        if item.evidence_windows:
            keys.append(Patch(color=_EVIDENCE, alpha=0.35, label="evidence"))
        if item.is_key is not None and item.is_key.any():
            keys.append(_draw_keyframes(axes, item.slot_seconds[item.is_key]))
        axes.set_title(title, fontweight="normal", fontsize=8, pad=20)
        axes.set(xlabel="time in the video", ylabel="share of video attention (%)", xlim=(0, edges[-1]))
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        _clock_axis(axes, float(edges[-1]))
        legend = axes.legend(
            handles=keys,
            loc="lower left",
            bbox_to_anchor=(-0.01, 1.0),
            ncols=len(keys),
            borderaxespad=0.2,
            columnspacing=1.0,
            handlelength=1.4,
            handletextpad=0.5,
        )
        # Its room is the title's padding; it must not make the axes narrower.
        legend.set_in_layout(False)
        footer.draw(figure)
    return figure


def contact_sheet(frames: AttendedFrames, columns: int = 4) -> Figure:
    """The most attended frames, each beside itself with its patches' heat, on one scale.

    Above: the picture as shown, its rank, time and share. Below: the same in grey under the heat.
    Evidence has a green border and says so.

    Raises:
        ValueError: no frames, or arrays that disagree in their number.
    """
    count = len(frames.thumbnails)
    lengths = {len(part) for part in (frames.heat, frames.shares, frames.seconds, frames.evidence)}
    if lengths != {count} or count == 0:
        raise ValueError(f"{count} thumbnails, but the other arrays have lengths {sorted(lengths)}")
    known = [float(np.nanmax(heat)) for heat in frames.heat if np.isfinite(heat).any()]
    largest = max(known, default=0.0) or 1.0
    columns = max(2, min(columns, count))
    bands = -(-count // columns)
    with styled():
        footer = Footer([], _sheet_caption(frames))
        height, width = frames.thumbnails.shape[1:3]
        # Portrait frames in few columns would otherwise be taller than a page.
        cell = min((FIGURE_WIDTH - 1.0) / columns - 0.08, 2.6 * width / height)
        figure = footer.figure(panel_inches=0.3 + bands * (2 * cell * height / width + 0.45))
        if not isinstance(engine := figure.get_layout_engine(), ConstrainedLayoutEngine):
            raise TypeError("a contact sheet needs constrained layout")
        engine.set(wspace=0.0, hspace=0.0)
        figure.suptitle(
            wrapped(f"Most attended frames of {plain_text(frames.item_id)}", 5.8, 9.0, max_lines=1),
            x=0.02,
            ha="left",
            fontsize=9,
            fontweight="bold",
        )
        axes = figure.subplots(2 * bands, columns, squeeze=False)
        for place in axes.flat:
            place.set_axis_off()
        for index in range(count):
            row, column = divmod(index, columns)
            picture = _enlarged(frames.thumbnails[index])
            overlay = heat_overlay(picture, frames.heat[index], largest)
            _draw_picture(axes[2 * row, column], picture, bool(frames.evidence[index]))
            _draw_picture(axes[2 * row + 1, column], overlay, bool(frames.evidence[index]))
            if frames.evidence[index]:
                axes[2 * row + 1, column].set_xlabel("evidence", color=_EVIDENCE, size=7.5, labelpad=2)
            axes[2 * row, column].set_title(
                _frame_title(frames, index), fontsize=7.5, fontweight="normal", pad=3
            )
        _draw_heat_bar(figure, axes, largest)
        footer.draw(figure)
    return figure


def heat_overlay(
    picture: UInt8[np.ndarray, "height width 3"], heat: Float[np.ndarray, "row col"], largest: float
) -> UInt8[np.ndarray, "height width 3"]:
    """`picture` in grey, tinted by `heat` from 0 to `largest`; each patch fills its own rectangle.

    Nearest-neighbour: pixel (y, x) takes patch (y * rows // height, x * cols // width). Colour and
    opacity grow with the square root of the heat, since a few patches hold most of it. Patches that
    are NaN stay grey.
    """
    height, width = picture.shape[:2]
    rows, cols = heat.shape
    at_pixel = heat[np.arange(height)[:, None] * rows // height, np.arange(width)[None, :] * cols // width]
    level = np.sqrt(np.clip(np.nan_to_num(at_pixel) / largest, 0.0, 1.0))
    grey = repeat(picture @ _LUMINANCE, "height width -> height width 3")
    tinted = _tint(level, grey / 255.0) * 255.0
    return np.rint(np.where(np.isfinite(at_pixel)[..., None], tinted, grey)).astype(np.uint8)


def _tint(
    level: Float[np.ndarray, "*shape"], below: Float[np.ndarray, "*shape 3"]
) -> Float[np.ndarray, "*shape 3"]:
    """The heat map's colour of `level` (0 to 1) over the colour `below`."""
    alpha = (_ALPHA_AT_ZERO + (_ALPHA_AT_LARGEST - _ALPHA_AT_ZERO) * level)[..., None]
    return alpha * mpl.colormaps[_HEAT_MAP](level)[..., :3] + (1.0 - alpha) * below


def _draw_heat_bar(figure: Figure, axes: np.ndarray, largest: float) -> None:
    """The scale, tinted over mid grey as the pictures are over their own grey."""
    colors = ListedColormap(_tint(np.linspace(0.0, 1.0, 256), np.full((256, 3), 0.5)))
    scale = ScalarMappable(PowerNorm(0.5, 0.0, largest), colors)
    bar = figure.colorbar(scale, ax=axes, fraction=0.03, pad=0.01, aspect=30, shrink=0.9)
    bar.set_label("share of the video's attention, by patch (%)")
    ticks = largest * np.array([0.0, 0.04, 0.16, 0.36, 0.64, 1.0])
    bar.set_ticks(ticks.tolist(), labels=[f"{100 * tick:.2g}%" for tick in ticks])
    bar.ax.minorticks_off()


def _enlarged(picture: UInt8[np.ndarray, "height width 3"]) -> UInt8[np.ndarray, "tall wide 3"]:
    """`picture` by a whole factor, smoothly, so that its pixels do not pass for patches in print."""
    factor = -(-_PRINTED_PIXELS // max(picture.shape[:2]))
    size = (picture.shape[1] * factor, picture.shape[0] * factor)
    return np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.BICUBIC))


def _draw_picture(axes: Axes, picture: np.ndarray, evidence: bool) -> None:
    axes.set_axis_on()
    axes.imshow(picture, interpolation="nearest", aspect="equal")
    axes.set(xticks=[], yticks=[])
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(evidence)
        spine.set(color=_EVIDENCE, linewidth=2.5)


def _frame_title(frames: AttendedFrames, index: int) -> str:
    share = frames.shares[index]
    told = f"{share:.1%}" if np.isfinite(share) else "no share"
    return f"#{index + 1}   {clock(float(frames.seconds[index]))}   {told}"


def _draw_keyframes(axes: Axes, slot_seconds: Float[np.ndarray, "unit slot"]) -> Line2D:
    """Ticks along the bottom at the keyframes' first pictures; returns their key."""
    first = np.array([row[np.isfinite(row)][0] for row in slot_seconds if np.isfinite(row).any()])
    (line,) = axes.plot(
        first,
        np.zeros(len(first)),
        linestyle="none",
        marker="|",
        markersize=7,
        color="black",
        transform=axes.get_xaxis_transform(),
        clip_on=False,
        gid="keyframes",
        label="keyframe",
    )
    return line


def _clock_axis(axes: Axes, duration: float) -> None:
    """Ticks at round clock times."""
    steps = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 36000)
    step = next((step for step in steps if duration / step <= 8), None)
    if step is None or duration < 2:
        axes.set_xlabel("time in the video (s)")
        return
    axes.set_xticks(np.arange(0, duration + 1e-9, step))
    hours = duration >= 3600
    axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: clock(seconds, hours)))
    axes.set_xlabel(f"time in the video ({'h:mm:ss' if hours else 'mm:ss'})")


def _verdict(item: ItemAttention) -> str:
    """Answer, target and whether they agree, on one line."""
    mark = {True: "\N{CHECK MARK} correct", False: "\N{BALLOT X} wrong", None: "not scored"}[item.correct]
    answer = plain_text(item.answer) if item.answer else "none"
    target = plain_text(item.target) if item.target else "none"
    told = (f"Answer: {answer}", f"Target: {target}", mark)
    return wrapped(" \N{MIDDLE DOT} ".join(told), 6.1, 8.0, max_lines=1)


def _item_caption(item: ItemAttention, n_drawn: int) -> str:
    parts = [f"Item {plain_text(item.item_id)}.", f"{len(item.unit_share)} units."]
    if n_drawn < len(item.unit_share):
        parts.append(f"{len(item.unit_share) - n_drawn} units have no time in the video and are not drawn.")
    if not item.evidence_windows:
        parts.append("No evidence window is known.")
    return " ".join(parts)


def _sheet_caption(frames: AttendedFrames) -> str:
    parts = [
        "Each title: rank among the units, time, share of the video's attention. "
        "Below each picture: the same in grey under the attention of its patches, on one scale (square root)."
    ]
    if frames.evidence.any():
        parts.append("Green border: evidence.")
    return " ".join(parts)
