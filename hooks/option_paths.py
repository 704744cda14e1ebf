"""Paths to and from the right option and the other ones.

Map the Flow (arXiv 2510.13251, section 3) follows what the video says to the true option and to the false
ones apart: a model that knows the answer carries it to the true one.
"""

from __future__ import annotations

import numpy as np

from hooks.edges import Edges, path_edges
from hooks.errors import InterventionError
from hooks.token_map import TokenMap

__all__ = ["OPTION_PATHS", "option_path_edges"]

OPTION_PATHS = {
    "video_to_right_option": "the right option's tokens read the video",
    "video_to_other_options": "the other options' tokens read the video",
    "right_option_to_last": "the last position, and tokens generated after it, read the right option",
    "other_options_to_last": "the last position, and tokens generated after it, read the other options",
}
"""The named paths that ask which option is right, and what each is."""


def option_path_edges(
    tokens: TokenMap, name: str, right: int, *, delimiters: bool = True
) -> tuple[Edges, ...]:
    """The edges of a path to or from some of the options.

    Args:
        tokens: the map of the prompt, made with its options.
        name: one of `OPTION_PATHS`.
        right: which option is right, from 0 in the order of the prompt.
        delimiters: as in `path_edges`.

    Raises:
        InterventionError: no such path or option, or this prompt has none of its queries or keys.
    """
    if name not in OPTION_PATHS:
        raise InterventionError(
            f"There is no path {name!r} of options.", remedy=f"Known: {', '.join(OPTION_PATHS)}."
        )
    n_options = len(tokens.each_option)
    if not 0 <= right < n_options:
        raise InterventionError(
            f"Option {right} was called right: the prompt has {n_options} options.",
            remedy="Name options to hooks.token_map, and count them from 0.",
        )
    wanted = [own for place, own in enumerate(tokens.each_option) if (place == right) == ("right_" in name)]
    positions = np.concatenate([np.empty(0, np.int64), *wanted])
    if not len(positions):
        raise InterventionError(
            f"This prompt has no tokens of such options for the path {name}.",
            remedy="Leave the path out for this item.",
        )
    if name.startswith("video_"):
        (whole,) = path_edges(tokens, "video_to_options", delimiters=delimiters)
        return (Edges(positions, whole.keys),)
    (whole,) = path_edges(tokens, "options_to_last")
    return (Edges(whole.queries, positions, generated=True),)
