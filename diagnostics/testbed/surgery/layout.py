"""Where each thing stands in the residual stream of a constructed model."""

from __future__ import annotations

from dataclasses import dataclass

from diagnostics.data.minihorizon.plan import LESION_COLOURS
from diagnostics.data.minihorizon.procedure import STEPS

__all__ = ["COLOURS", "LAYOUT", "LETTERS", "Layout"]

COLOURS = tuple(LESION_COLOURS)
LETTERS = tuple("ABCDEF")
_C, _S, _L = len(COLOURS), len(STEPS), len(LETTERS)


@dataclass(frozen=True, slots=True)
class Layout:
    """Dimensions of the residual stream, by what they hold.

    Attributes:
        one: a constant, the same at every position and far larger than all else: it keeps the norms'
            divisor almost constant, and biases are read from it.
        visual: all that the vision tower writes, and nobody else: lesion, colours, step, steps.
        lesion, step: log-odds (a tenth of them) that the token shows one; negative at text.
        colours, steps: which one it shows.
        letter: which letter the token is. All of the following are zero at visual tokens.
        colour_word, step_word: which word the token is.
        said: the token is an answer.
        letter_before: the option's letter, two tokens before this one.
        has_options: a letter stood somewhere before.
        named_steps: step words so far, as shares.
        colour_read: colour code that the reading head wrote.
        step_read, step_seen: what the steps' reading head wrote, and the same cut to "seen or not".
        found: letter of the option that the look-up found.
    """

    one: int
    lesion: int
    colours: slice
    step: int
    steps: slice
    letter: slice
    colour_word: slice
    step_word: slice
    said: int
    letter_before: slice
    has_options: int
    named_steps: slice
    colour_read: slice
    step_read: slice
    step_seen: slice
    found: slice

    @property
    def visual(self) -> slice:
        """The subspace of what is seen."""
        return slice(self.lesion, self.steps.stop)


def _laid_out() -> Layout:
    widths = {
        "one": 0, "lesion": 0, "colours": _C, "step": 0, "steps": _S, "letter": _L, "colour_word": _C,
        "step_word": _S, "said": 0, "letter_before": _L, "has_options": 0, "named_steps": _S,
        "colour_read": _C, "step_read": _S, "step_seen": _S, "found": _L,
    }  # fmt: skip
    places: dict[str, int | slice] = {}
    start = 0
    for name, width in widths.items():
        places[name] = slice(start, start + width) if width else start
        start += width or 1
    return Layout(**places)  # type: ignore[arg-type]


LAYOUT = _laid_out()
