"""Attention edges by name: which queries and which keys a path through the model is made of.

An edge is a pair (query position, key position), the key no later than the query; in models whose pictures
see one another in both directions (`TokenMap.two_way`), a later key of a picture too. The named paths are
those of Map the Flow (arXiv 2510.13251, section 3), with one addition: what lies between the pictures.
A time or a delimiter of a unit has read the unit's tokens, or is read by them, and can carry what the
unit said past a block. So a unit here is its visual tokens *and* the times and delimiters beside it
(`delimiters=True`), or its visual tokens alone (`delimiters=False`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Int

from hooks.errors import InterventionError
from hooks.layout import Kind
from hooks.token_map import TokenMap

__all__ = [
    "PATHS",
    "Edges",
    "WindowStyle",
    "edge_count",
    "layer_window",
    "path_edges",
    "positions_to_everything",
    "random_edges_like",
    "rows_alike",
    "units_to_everything",
]

PATHS = {
    "cross_unit": "a unit of the video reads earlier units, and later ones where pictures see both ways",
    "video_to_question": "the question's tokens read the video",
    "video_to_options": "the options' tokens read the video",
    "video_to_last": "the last position, and tokens generated after it, read the video",
    "video_to_rest": "text after the video that is neither question, options nor last reads the video",
    "video_to_everything": "all text reads the video: every road out of it",
    "question_to_last": "the last position, and tokens generated after it, read the question",
    "options_to_last": "the last position, and tokens generated after it, read the options",
    "last_to_last": "the last position reads itself: the negative control",
}
"""The named paths and what each is."""

WindowStyle = Literal["centre", "inverse", "top_down", "bottom_up"]

_BANDS, _BAND = 16, 64
"""Neighbouring rows of a random control share their keys, in bands of at most 64 rows, at least 16 of them,
and none with more than an eighth of the edges: each band is one small recomputation."""


@dataclass(frozen=True, eq=False)
class Edges:
    """Every pair of one set of queries and one set of keys that attention has.

    Attributes:
        queries, keys: positions of the padded prompt, ascending, once each.
        generated: tokens generated after the prompt are among the queries too.
        two_way: of the prompt (`TokenMap.two_way`), to count pairs with later keys; None: there are none.
    """

    queries: Int[np.ndarray, " query"]
    keys: Int[np.ndarray, " key"]
    generated: bool = False
    two_way: Int[np.ndarray, " position"] | None = None

    def __post_init__(self) -> None:
        for name in ("queries", "keys"):
            given = np.atleast_1d(np.asarray(getattr(self, name)))
            if given.size == 0:
                raise InterventionError(f"Edges have no {name}.", remedy="Give positions of the prompt.")
            if given.ndim != 1 or given.dtype.kind not in "iu":
                raise InterventionError(
                    f"The {name} of edges are {given.dtype} with {given.ndim} axes.",
                    remedy="Give one list of whole positions; np.flatnonzero turns a mask into one.",
                )
            if (np.diff(given) <= 0).any():
                given = np.unique(given)
            object.__setattr__(self, name, given)

    def count(self) -> int:
        """How many pairs these are, generated tokens apart."""
        before = int(np.searchsorted(self.keys, self.queries, side="right").sum())
        return before if self.two_way is None else before + self._later(self.two_way)

    def _later(self, two_way: Int[np.ndarray, " position"]) -> int:
        """Pairs whose key is the later one."""
        found = 0
        for block in np.unique(two_way[two_way >= 0]):
            keys = self.keys[two_way[self.keys] == block]
            queries = self.queries[two_way[self.queries] == block]
            found += int((len(keys) - np.searchsorted(keys, queries, side="right")).sum())
        return found


def edge_count(edges: Sequence[Edges]) -> int:
    """How many pairs several `Edges` have together, generated tokens apart; each counts once."""
    found = 0
    for members, rows in rows_alike([one.queries for one in edges]):
        keys = np.unique(np.concatenate([edges[place].keys for place in members]))
        blocks = [two_way for place in members if (two_way := edges[place].two_way) is not None]
        found += Edges(rows, keys, two_way=blocks[0] if blocks else None).count()
    return found


def rows_alike(
    sets: Sequence[Int[np.ndarray, " row"]],
) -> Iterator[tuple[tuple[int, ...], Int[np.ndarray, " row"]]]:
    """Rows that are members of the same sets, with the indices of those sets."""
    members: dict[int, list[int]] = {}
    for index, rows in enumerate(sets):
        for row in rows.tolist():
            members.setdefault(row, []).append(index)
    groups: dict[tuple[int, ...], list[int]] = {}
    for row in sorted(members):
        groups.setdefault(tuple(members[row]), []).append(row)
    for key, found in groups.items():
        yield key, np.array(found, dtype=np.int64)


def path_edges(tokens: TokenMap, name: str, *, delimiters: bool = True) -> tuple[Edges, ...]:
    """The edges of a named path (`PATHS`).

    Args:
        tokens: the map of the prompt.
        name: one of `PATHS`.
        delimiters: times and delimiters beside a unit belong to it.

    Raises:
        InterventionError: no such path, or this prompt has none of its queries or keys.
    """
    if name not in PATHS:
        raise InterventionError(f"There is no path {name!r}.", remedy=f"Known: {', '.join(PATHS)}.")
    if name == "cross_unit":
        return _cross_unit(tokens, delimiters)
    source, _, target = name.partition("_to_")
    keys = _video(tokens, delimiters) if source == "video" else tokens.rows(source)
    if target == "everything":
        return (_to_everything(tokens, keys),)
    queries = _rest(tokens) if target == "rest" else tokens.rows(target)
    if not len(queries) or not len(keys):
        raise InterventionError(
            f"This prompt has no {target if not len(queries) else source} for the path {name}.",
            remedy="Leave the path out for this item.",
        )
    return (Edges(queries, keys, generated=target == "last" and source != "last"),)


def units_to_everything(
    tokens: TokenMap, units: Sequence[int] | Int[np.ndarray, " unit"], *, delimiters: bool = True
) -> Edges:
    """Every road out of some units: all that reads them but these units' own positions, generated tokens too.

    Later units of the video are among the queries, and earlier ones where pictures see both ways. Within the
    set units still see themselves and one another, so that the set is as if it stood in a video that nobody
    watches.

    Args:
        tokens: the map of the prompt.
        units: which temporal units, by their index in the map.
        delimiters: as in `path_edges`.

    Raises:
        InterventionError: no unit is given, or one is not in the prompt.
    """
    wanted = np.unique(np.asarray(units))
    if not len(wanted) or wanted.min() < 0 or wanted.max() >= tokens.n_units:
        raise InterventionError(
            f"Units {wanted.tolist()} were asked for: the prompt has units 0 to {tokens.n_units - 1}.",
            remedy="Name at least one of those.",
        )
    keys = np.flatnonzero(np.isin(tokens.unit, wanted) & _belongs(tokens, delimiters))
    return _to_everything(tokens, keys)


def positions_to_everything(
    tokens: TokenMap, positions: Sequence[int] | Int[np.ndarray, " position"]
) -> Edges:
    """Every road out of some positions, such as a few patches: all later ones but these, generated ones too.

    Among themselves they still see each other. What a patch shows is also in others of its unit: the vision
    tower has mixed them before the language model sees any.

    Raises:
        InterventionError: none is given, one is not in the prompt, or they are no whole numbers: a mask of
            the prompt is not its positions.
    """
    wanted = np.unique(np.asarray(positions))
    if not len(wanted) or wanted.dtype.kind not in "iu" or wanted.min() < 0 or wanted.max() >= len(tokens):
        raise InterventionError(
            f"Positions {wanted[:8].tolist()} were asked for: the prompt has 0 to {len(tokens) - 1}.",
            remedy="Name at least one of those (of a mask: numpy.flatnonzero).",
        )
    return _to_everything(tokens, wanted.astype(np.int64))


def random_edges_like(
    tokens: TokenMap,
    edges: Sequence[Edges] | Edges,
    seed: int | Sequence[int],
    *,
    rows: Literal["same", "any"] = "any",
) -> tuple[Edges, ...]:
    """A random control of the same size.

    Args:
        tokens: the map of the prompt.
        edges: what is controlled for.
        seed: of the draw, as numpy takes it.
        rows: `same` keeps the queries and puts another key in place of each, drawn from positions before all
            of them that were not blocked, from the video where video was blocked. A key that several of the
            edges share has one in its place, and no two have the same. `any` draws as many
            causal edges from the whole prompt, as Map the Flow's control does (arXiv 2510.13251,
            section 4); neighbouring rows share their keys, and no row loses its own position. It is a
            control of the prompt's rows: tokens generated later are left alone.

    Raises:
        InterventionError: there are not so many other edges.
    """
    given = (edges,) if isinstance(edges, Edges) else tuple(edges)
    generator = np.random.default_rng(seed)
    if rows == "same":
        return _other_keys(tokens, given, generator)
    return _anywhere(tokens, edge_count(given), generator)


def layer_window(centre: int, size: int, n_layers: int, style: WindowStyle = "centre") -> tuple[int, ...]:
    """Layers around or beside one, as in Map the Flow (arXiv 2510.13251, section 3).

    Args:
        centre: a layer, from 0.
        size: how many layers; an odd number lies evenly around the centre, of an even one the layer at
            `centre + size / 2` is left out. Clipped at the model's ends.
        n_layers: of the model.
        style: `centre` is the window, `inverse` all other layers, `top_down` the centre and all after it,
            `bottom_up` the centre and all before it; the last two have no size.

    Raises:
        InterventionError: no such layer, size or style, or no layer is left.
    """
    if not 0 <= centre < n_layers or size < 1:
        raise InterventionError(
            f"A window of {size} layers around layer {centre} was asked for.",
            remedy=f"The model has layers 0 to {n_layers - 1}; a window has at least one.",
        )
    half = size // 2
    end = centre + half + size % 2
    window = range(max(0, centre - half), min(n_layers, end))
    found = {
        "centre": tuple(window),
        "inverse": tuple(layer for layer in range(n_layers) if layer not in window),
        "top_down": tuple(range(centre, n_layers)),
        "bottom_up": tuple(range(centre + 1)),
    }
    if style not in found:
        raise InterventionError(f"There is no window style {style!r}.", remedy=f"Known: {', '.join(found)}.")
    if not found[style]:
        raise InterventionError(
            f"No layer lies outside a window of {size} around {centre}.", remedy="Take a smaller window."
        )
    return found[style]


def _belongs(tokens: TokenMap, delimiters: bool) -> Bool[np.ndarray, " position"]:
    """Positions that count as part of a unit; `tokens.unit` says of which."""
    return (tokens.unit >= 0) & (delimiters | (tokens.row >= 0))


def _video(tokens: TokenMap, delimiters: bool) -> Int[np.ndarray, " position"]:
    return np.flatnonzero(_belongs(tokens, delimiters))


def _rest(tokens: TokenMap) -> Int[np.ndarray, " position"]:
    """Text after the first visual token that has no role."""
    taken = np.concatenate([tokens.question, tokens.options, tokens.last])
    text = np.flatnonzero(tokens.kind == Kind.TEXT)
    first = tokens.visual[0] if tokens.n_visual else len(tokens)
    return np.setdiff1d(text[text > first], taken)


def _to_everything(tokens: TokenMap, keys: Int[np.ndarray, " key"]) -> Edges:
    if not len(keys):
        raise InterventionError("The prompt has no video.", remedy="Leave the path out for this item.")
    real = np.flatnonzero(tokens.kind != Kind.PADDING)
    reads = (real > keys[0]) | np.isin(tokens.two_way[real], np.setdiff1d(tokens.two_way[keys], [-1]))
    queries = np.setdiff1d(real[reads], keys, assume_unique=True)
    return Edges(queries, keys, generated=True, two_way=_blocks(tokens))


def _blocks(tokens: TokenMap) -> Int[np.ndarray, " position"] | None:
    return tokens.two_way if (tokens.two_way >= 0).any() else None


def _cross_unit(tokens: TokenMap, delimiters: bool) -> tuple[Edges, ...]:
    """One rectangle a unit: its positions, and all positions of the units before it; of all others where
    pictures see both ways."""
    source = _video(tokens, delimiters)
    # A position may stand before its unit's predecessors only where two videos are interleaved: sort.
    source = source[np.argsort(tokens.unit[source], kind="stable")]
    if (np.diff(source) <= 0).any() or tokens.n_units < 2:
        raise InterventionError(
            "Units of this prompt do not follow one another, or there is one only.",
            remedy="Leave cross_unit out for this item.",
        )
    starts = np.searchsorted(tokens.unit[source], np.arange(tokens.n_units + 1))
    if (blocks := _blocks(tokens)) is not None:
        own = [source[starts[unit] : starts[unit + 1]] for unit in range(tokens.n_units)]
        return tuple(Edges(one, np.setdiff1d(source, one), two_way=blocks) for one in own)
    # Slices of one array: 400 units of a long video share its memory.
    return tuple(
        Edges(source[starts[unit] : starts[unit + 1]], source[: starts[unit]])
        for unit in range(1, tokens.n_units)
    )


def _other_keys(
    tokens: TokenMap, given: tuple[Edges, ...], generator: np.random.Generator
) -> tuple[Edges, ...]:
    """The same queries with another key in place of each, from before them, blocked for none of them."""
    for one in given:
        if one.keys[-1] > one.queries[0]:
            raise InterventionError(
                "Queries lie among the keys they are kept from: no other keys are before all of them.",
                remedy='Take units_to_everything of other units as the control, or rows="any".',
            )
    found: dict[int, Edges] = {}
    for some in _sharing_queries(given):
        instead = _exchanged(tokens, [given[place] for place in some], generator)
        for place in some:
            one = given[place]
            found[place] = Edges(one.queries, np.sort(instead[one.keys]), one.generated)
    return tuple(found[place] for place in range(len(given)))


def _sharing_queries(given: Sequence[Edges]) -> Iterator[list[int]]:
    """Edges put together that share queries, directly or by way of others."""
    labels = np.arange(len(given))
    for members, _ in rows_alike([one.queries for one in given]):
        joined = labels[list(members)]
        labels[np.isin(labels, joined)] = joined.min()
    for label in np.unique(labels):
        yield np.flatnonzero(labels == label).tolist()


def _exchanged(
    tokens: TokenMap, edges: Sequence[Edges], generator: np.random.Generator
) -> Int[np.ndarray, " position"]:
    """By position: for each key of edges that share queries, one that takes its place; -1 elsewhere.

    A key in several edges has to suit all of them. Keys with the fewest to choose from are drawn first.
    """
    end = np.full(len(tokens), len(tokens))  # before which position
    kind = np.zeros(len(tokens), dtype=np.int64)  # any, of a unit, a visual token
    for one in edges:
        end[one.keys] = np.minimum(end[one.keys], one.queries[0])
        visual, unit = (tokens.row[one.keys] >= 0).all(), (tokens.unit[one.keys] >= 0).all()
        kind[one.keys] = np.maximum(kind[one.keys], int(unit) + int(unit and visual))
    blocked = np.unique(np.concatenate([one.keys for one in edges]))
    allowed = tokens.kind != Kind.PADDING
    allowed[blocked] = False
    instead = np.full(len(tokens), -1)

    def free(first: int, suits: int) -> Int[np.ndarray, " position"]:
        """What may still be drawn before a position, the first query itself left out."""
        found = np.flatnonzero(allowed[:first])
        return found[(tokens.unit, tokens.row)[suits - 1][found] >= 0] if suits else found

    alike = {(int(end[key]), int(kind[key])) for key in blocked}
    for first, suits in sorted(alike, key=lambda some: (len(free(*some)), some)):
        mine = blocked[(end[blocked] == first) & (kind[blocked] == suits)]
        choice = free(first, suits)
        if len(choice) < len(mine):
            raise _too_few(len(mine), len(choice))
        instead[mine] = generator.choice(choice, len(mine), replace=False)
        allowed[instead[mine]] = False
    return instead


def _too_few(wanted: int, found: int) -> InterventionError:
    return InterventionError(
        f"A control needs {wanted} other keys for the same queries; there are {found}.",
        remedy='Draw it from the whole prompt: rows="any".',
    )


def _anywhere(tokens: TokenMap, count: int, generator: np.random.Generator) -> tuple[Edges, ...]:
    """`count` edges at one density over all rows, a band of rows at a time."""
    real = np.flatnonzero(tokens.kind != Kind.PADDING)
    size = max(1, min(_BAND, len(real) // _BANDS, count // 8))
    bands = [real[start : start + size] for start in range(1, len(real), size)]
    before = np.array([np.searchsorted(real, band[0]) for band in bands])
    sizes = np.array([len(band) for band in bands])
    possible = int((before * sizes).sum())
    if count > possible:
        raise _too_few(count, possible)
    found, owed = [], size * generator.uniform(-0.5, 0.5)  # so that rounding favours no row
    for band, free in zip(bands, before, strict=True):
        owed += count / possible * free * len(band)
        keys = min(int(free), max(0, round(owed / len(band))))
        owed -= keys * len(band)  # what rounding leaves goes to the next band
        if keys:
            found.append(Edges(band, np.sort(generator.choice(real[:free], keys, replace=False))))
    return tuple(found)
