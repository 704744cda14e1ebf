"""What stands below the panels of a figure: a legend of the runs, what they say, then the caption.

Room for all of it is reserved in inches before the panels are laid out, so that long names and captions
make the figure taller and never cover anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from diagnostics.report.style import FIGURE_WIDTH, LINE_INCHES, bar_look, run_style, wrapped

__all__ = ["Footer"]

_CAPTION_POINTS = 7.0
_LEGEND_POINTS = 8.0
_STATEMENT_POINTS = 8.0


class Footer:
    """Legend, statement and caption of one figure.

    Args:
        labels: one text a run, in the order of `run_style`; none for a figure of one item.
        caption: what a reader must know beyond the axes.
        statement: what the figure shows, in sentences made from its numbers; none where empty.
        keys: further entries of the legend: what line styles mean, whatever their colour.
        bars: the series are bars, told apart by `bar_look`, and not lines with marks.
    """

    def __init__(
        self,
        labels: Sequence[str],
        caption: str,
        *,
        statement: str = "",
        keys: Sequence[Line2D] = (),
        bars: bool = False,
    ) -> None:
        self.bars = bars
        self.labels = [wrapped(label, FIGURE_WIDTH - 0.65, _LEGEND_POINTS) for label in labels]
        self.keys = list(keys)
        self.caption = wrapped(caption, FIGURE_WIDTH - 0.3, _CAPTION_POINTS)
        self.statement = wrapped(statement, FIGURE_WIDTH - 0.3, _STATEMENT_POINTS) if statement else ""
        lines = sum(label.count("\n") + 1.1 for label in self.labels) + 0.9 * len(self.keys)
        self.legend_inches = LINE_INCHES * lines + 0.05 if labels else 0.0
        self.statement_inches = (
            1.1 * LINE_INCHES * (self.statement.count("\n") + 1) + 0.1 if statement else 0.0
        )
        self.caption_inches = LINE_INCHES * (self.caption.count("\n") + 1) + 0.06

    @property
    def _inches(self) -> float:
        return self.legend_inches + self.statement_inches + self.caption_inches

    def figure(self, panel_inches: float) -> Figure:
        """An empty figure with `panel_inches` of height for the panels above the footer."""
        self.height = panel_inches + self._inches
        below = self._inches / self.height
        engine = ConstrainedLayoutEngine(
            rect=(0, below, 1, 1 - below), w_pad=0.04, h_pad=0.04, wspace=0.04, hspace=0.02
        )
        return Figure(figsize=(FIGURE_WIDTH, self.height), layout=engine)

    def draw(self, figure: Figure) -> None:
        """Put legend, statement and caption into their room."""
        if self.labels:
            self._draw_legend(figure)
        if self.statement:
            figure.text(
                0.02,
                (self.caption_inches + self.statement_inches - 0.05) / self.height,
                self.statement,
                va="top",
                ha="left",
                size=_STATEMENT_POINTS,
                linespacing=1.3,
                gid="statement",
            )
        figure.text(
            0.02,
            self.caption_inches / self.height,
            self.caption,
            va="top",
            ha="left",
            size=_CAPTION_POINTS,
            color="#333333",
            gid="caption",
        )

    def _draw_legend(self, figure: Figure) -> None:
        handles = [self._handle(position) for position in range(len(self.labels))]
        # Up to 3.9 matplotlib hides an entry whose label begins with "_"; a run may be called so.
        labels = [f" {label}" if label.startswith("_") else label for label in self.labels]
        figure.legend(
            [*handles, *self.keys],
            [*labels, *(str(key.get_label()) for key in self.keys)],
            loc="upper left",
            bbox_to_anchor=(0.01, self._inches / self.height),
            borderaxespad=0.0,
            borderpad=0.1,
            labelspacing=0.25,
            handlelength=2.2,
        )

    def _handle(self, position: int) -> Line2D | Patch:
        if self.bars:
            return Patch(**bar_look(position))
        style = run_style(position)
        return Line2D([], [], color=style.color, marker=style.marker, markersize=4.5, linewidth=1.4)
