"""The arrays of one measurement, with named axes: what a tensor file of schema 1 holds.

The jaxtyping annotation of a field *is* its entry in the schema: the axes and the type in the file
are read from it, and so is what a test checks. Axis names mean one thing everywhere:

| axis | one entry is |
|---|---|
| layer, head | a decoder layer (its own index, where only some were captured), an attention head |
| role | a pooled group of query rows: question, options, last, generated |
| query | a single captured query row |
| unit, unit_other | a temporal unit, in the order shown |
| slot | a place within a unit: a unit of two frames has two |
| token | a visual token, in the order of the prompt |
| option | an answer option |
| feature | a dimension of an embedding |
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int32, Int64

from diagnostics.errors import InconsistentTensorsError
from diagnostics.store.canonical import Pair, condition_id

__all__ = [
    "AXES",
    "PARTS",
    "Answer",
    "Attention",
    "Control",
    "Decode",
    "Knockout",
    "Lens",
    "PairTensors",
    "Patching",
    "Rows",
    "Similarity",
    "States",
    "Tokens",
    "UnitMaps",
    "Units",
    "Variable",
    "schema_of",
]

AXES = ("layer", "head", "role", "query", "unit", "unit_other", "slot", "token", "option", "feature")
"""Every axis of schema 1, each a dimension scale at the root of the file."""

_ROW_SUM_TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True)
class Units:
    """The map from temporal units back to frames and seconds.

    Attributes:
        frame_index: source frame in presentation order; -1 where a unit has fewer frames than others,
            or shows a synthetic picture.
        true_seconds: presentation time of that frame; NaN where there is none.
        shown_seconds: the time the model was told; NaN where there is none.
        evidence: the slot shows evidence.
    """

    frame_index: Int64[np.ndarray, "unit slot"]
    true_seconds: Float64[np.ndarray, "unit slot"]
    shown_seconds: Float64[np.ndarray, "unit slot"]
    evidence: Bool[np.ndarray, "unit slot"]


@dataclass(frozen=True, slots=True)
class Tokens:
    """Where each visual token is: its position in the prompt, its unit, and its row and column there.

    (`unit_index` and not `unit`: xarray would show the axis of that name in its place.)
    """

    position: Int32[np.ndarray, " token"]
    unit_index: Int32[np.ndarray, " token"]
    row: Int32[np.ndarray, " token"]
    col: Int32[np.ndarray, " token"]


@dataclass(frozen=True, slots=True)
class Attention:
    """Attention of the pooled query rows, as shares of all attention of a row.

    Attributes:
        unit_mass: mass on each unit, the mean over the rows of the role; NaN for a role without rows.
        rest_mass: mass on all that is not video, so that unit_mass summed over units plus this is 1.
        token_mass: mass on each visual token, the mean over heads.
        value_mass: as unit_mass, each token weighted by the norm of its value vector.
        value_rest_mass: the same of all that is not video; with value_mass it sums to no fixed number.
        sink_score: how much of a sink each visual token is, in that layer.
        sink_unit_mass: the part of unit_mass that goes to sink tokens: less it, the sink-filtered mass.
    """

    unit_mass: Float32[np.ndarray, "layer head role unit"]
    rest_mass: Float32[np.ndarray, "layer head role"]
    token_mass: Float32[np.ndarray, "layer role token"]
    value_mass: Float32[np.ndarray, "layer head role unit"] | None = None
    value_rest_mass: Float32[np.ndarray, "layer head role"] | None = None
    sink_score: Float32[np.ndarray, "layer token"] | None = None
    sink_unit_mass: Float32[np.ndarray, "layer head role unit"] | None = None


@dataclass(frozen=True, slots=True)
class Rows:
    """Attention of every captured query row by itself; `position` is the row's place in the prompt,
    `sink_unit_mass` the part of `unit_mass` that goes to sink tokens."""

    position: Int32[np.ndarray, " query"]
    unit_mass: Float32[np.ndarray, "layer head query unit"]
    rest_mass: Float32[np.ndarray, "layer head query"]
    sink_unit_mass: Float32[np.ndarray, "layer head query unit"] | None = None


@dataclass(frozen=True, slots=True)
class Similarity:
    """How alike units and patches look.

    Attributes:
        unit_cosine: cosine of the units' embeddings.
        is_key: the unit is a keyframe, one of the most attended.
        keyframe: the nearest preceding keyframe's unit; -1 where none precedes.
        patch_to_keyframe: cosine of each visual token to the same place in that keyframe, or NaN.
    """

    unit_cosine: Float32[np.ndarray, "unit unit_other"]
    is_key: Bool[np.ndarray, " unit"]
    keyframe: Int32[np.ndarray, " unit"]
    patch_to_keyframe: Float32[np.ndarray, " token"]
    mean_direction: Float32[np.ndarray, " feature"] | None = None


@dataclass(frozen=True, slots=True)
class Control:
    """Attention under a control of what the video shows, such as blank pictures in the same places.

    Attributes:
        kind: which control (`blank`, `permuted`).
        value_mass: as unit_mass, each token weighted by the norm of its value vector.
    """

    unit_mass: Float32[np.ndarray, "layer head role unit"]
    rest_mass: Float32[np.ndarray, "layer head role"]
    kind: str
    value_mass: Float32[np.ndarray, "layer head role unit"] | None = None


@dataclass(frozen=True, slots=True)
class Decode:
    """Attention of the rows that wrote the reply.

    Here an entry of `query` is one of them: the last row of the prefill, then those of generated tokens.

    Attributes:
        written: the token that the row wrote.
        keys: how many positions it could look at.
        visual_mass: attention on the video, a share of all attention of the row.
        evidence_mass: the part of it on units that show evidence.
        sink_visual_mass, sink_evidence_mass: the parts of the two that go to sink tokens: less them, and as a
            share of what is left, the sink-filtered twins.
    """

    written: Int32[np.ndarray, " query"]
    keys: Int32[np.ndarray, " query"]
    visual_mass: Float32[np.ndarray, "layer head query"]
    evidence_mass: Float32[np.ndarray, "layer head query"]
    sink_visual_mass: Float32[np.ndarray, "layer head query"] | None = None
    sink_evidence_mass: Float32[np.ndarray, "layer head query"] | None = None


@dataclass(frozen=True, slots=True)
class States:
    """States of the residual stream, the mean over each unit's tokens.

    Attributes:
        unit_state: what enters each layer; an entry of `layer` as large as the number of decoder layers is
            what enters the final norm.
    """

    unit_state: Float32[np.ndarray, "layer unit feature"]


@dataclass(frozen=True, slots=True)
class UnitMaps:
    """Maps over units, and what happened when units were removed in their order.

    Here an entry of `role` is a map (or an ordering: random, oracle), one of `query` a point of its curves.

    Attributes:
        unit_score: each map's score of each unit.
        removed: how many units, or patches, are removed (deletion) or left (insertion) at each point.
        deletion, insertion: the outcome there.
        token_score: each map's score of each patch, where patches were removed; unit_score is then its sum.
    """

    unit_score: Float32[np.ndarray, "role unit"]
    removed: Int32[np.ndarray, " query"]
    deletion: Float32[np.ndarray, "role query"]
    insertion: Float32[np.ndarray, "role query"]
    token_score: Float32[np.ndarray, "role token"] | None = None


@dataclass(frozen=True, slots=True)
class Lens:
    """What the logit lens sees, by layer: layer k is what enters it, the last one what enters the final norm.

    Attributes:
        letter_logits, word_logits: of each option's letter, and of the first token of its text, at the
            prompt's last position; words are left out where two options begin alike.
        letter_attribution, word_attribution: the part of these logits that each head writes itself; NaN in
            the last layer, which is none.
        word_rank: of the right option's word at each unit, how many tokens are likelier.
        word_share: its probability there among the options' words.
    """

    letter_logits: Float32[np.ndarray, "layer option"]
    letter_attribution: Float32[np.ndarray, "layer head option"]
    word_logits: Float32[np.ndarray, "layer option"] | None = None
    word_attribution: Float32[np.ndarray, "layer head option"] | None = None
    word_rank: Int32[np.ndarray, "layer unit"] | None = None
    word_share: Float32[np.ndarray, "layer unit"] | None = None


@dataclass(frozen=True, slots=True)
class Knockout:
    """Logits of the options' letters with edges blocked.

    Here an entry of `layer` is the centre of a window, one of `role` a blocked path (`path:random` its random
    control), one of `query` a road out of the video; the roads' names are among the definitions.

    Attributes:
        window_logits: with each path blocked in each window; NaN for a path the prompt does not have.
        all_layers_logits: with each path blocked in every layer.
        road_logits: with nothing blocked, without video, and with each road out of it blocked.
    """

    window_logits: Float32[np.ndarray, "layer role option"]
    all_layers_logits: Float32[np.ndarray, "role option"]
    road_logits: Float32[np.ndarray, "query option"]


@dataclass(frozen=True, slots=True)
class Patching:
    """Logits of the options' letters with states of one video put into the run of another.

    Here an entry of `layer` is that at whose input they were put, one of `role` a set of positions: `unit:N`,
    `evidence`, `others`, `question`, `options`, `last`.

    Attributes:
        logits: of the patched runs; NaN where a cell was not made.
        clean, corrupt: of the two runs.
        leak: what DeepStack still adds of the other video to the set's tokens, as a share of the patch.
        screen: the effect on the logit difference to first order, where it was asked for.
    """

    logits: Float32[np.ndarray, "layer role option"]
    clean: Float32[np.ndarray, " option"]
    corrupt: Float32[np.ndarray, " option"]
    leak: Float32[np.ndarray, "layer role"]
    screen: Float32[np.ndarray, "layer role"] | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The model's answer: the logit of each option's letter as the first token, and the reply's text."""

    logits: Float32[np.ndarray, " option"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTensors:
    """Everything one tensor file holds; a part that was not measured is None.

    Attributes:
        item_id: the item.
        condition: its condition; with the item it names the file.
        units, tokens: what the other parts speak of.
        layer: the index in the model of each captured layer.
        role: the names of the pooled groups of rows.
        option: the letters of the options.
        definitions: what was measured how (rows, layers, pooling, key fraction, feature...).
        versions: versions of the packages that made it.
    """

    item_id: str
    condition: Mapping[str, Any]
    units: Units
    tokens: Tokens
    layer: Int32[np.ndarray, " layer"] = field(default_factory=lambda: np.zeros(0, np.int32))
    role: tuple[str, ...] = ()
    option: tuple[str, ...] = ()
    attention: Attention | None = None
    rows: Rows | None = None
    similarity: Similarity | None = None
    control: Control | None = None
    decode: Decode | None = None
    states: States | None = None
    unit_maps: UnitMaps | None = None
    lens: Lens | None = None
    knockout: Knockout | None = None
    patching: Patching | None = None
    answer: Answer | None = None
    definitions: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def pair(self) -> Pair:
        """The key: (item id, condition id)."""
        return self.item_id, condition_id(self.condition)

    @property
    def axes(self) -> dict[str, int]:
        """The length of each axis, 0 for one that nothing measured has.

        Raises:
            InconsistentTensorsError: an array has other axes than its field says, or two arrays give one
                axis two lengths.
        """
        lengths = {"layer": (len(self.layer), "layer"), "role": (len(self.role), "role")}
        lengths["option"] = (len(self.option), "option")
        for path, variable, array in self.arrays():
            if array.ndim != len(variable.axes):
                raise self._inconsistent(f"{path} has {array.ndim} axes, not {' '.join(variable.axes)}")
            for axis, length in zip(variable.axes, array.shape, strict=True):
                known, owner = lengths.setdefault(axis, (length, path))
                if known != length:
                    raise self._inconsistent(f"axis {axis} is {length} long in {path} and {known} in {owner}")
        return {axis: lengths[axis][0] if axis in lengths else 0 for axis in AXES}

    def arrays(self) -> Iterator[tuple[str, Variable, np.ndarray]]:
        """Each array that was measured: its path in the file, its entry in the schema, itself."""
        for name, kind in PARTS.items():
            part = getattr(self, name)
            for variable in schema_of(kind) if part is not None else ():
                if (array := getattr(part, variable.name)) is not None:
                    yield f"{name}/{variable.name}", variable, np.asarray(array)

    def check(self) -> None:
        """Check that axes agree, that numbers have a type the file keeps, and that rows sum to 1.

        A row that is NaN throughout is undefined (a role without rows) and passes.

        Raises:
            InconsistentTensorsError: names the array and what is wrong with it.
        """
        axes = self.axes
        if self.similarity is not None and axes["unit_other"] != axes["unit"]:
            raise self._inconsistent(f"unit_cosine is {axes['unit']} by {axes['unit_other']}, not square")
        for path, variable, array in self.arrays():
            # bfloat16 arrives as two opaque bytes, and a complex number would lose a half: refused by kind.
            if array.dtype.kind not in ("b" if variable.dtype.kind == "b" else variable.dtype.kind + "iu"):
                raise self._inconsistent(f"{path} holds {array.dtype}, not {variable.dtype}")
        for name in ("attention", "rows", "control"):
            if (part := getattr(self, name)) is not None:
                total = np.asarray(part.unit_mass, np.float64).sum(axis=-1) + part.rest_mass
                undefined = np.isnan(part.unit_mass).all(axis=-1) & np.isnan(part.rest_mass)
                worst = np.abs(np.where(undefined, 1.0, total) - 1.0).max(initial=0.0)
                if not worst <= _ROW_SUM_TOLERANCE:  # written so that NaN fails too
                    raise self._inconsistent(f"rows of {name} do not sum to 1 (one is off by {worst:.3g})")

    def _inconsistent(self, problem: str) -> InconsistentTensorsError:
        return InconsistentTensorsError(
            f"The arrays of this measurement cannot be kept: {problem}.",
            remedy="This is a fault in the measurement, not in the data: report it.",
            item_id=self.item_id,
        )


PARTS: dict[str, type] = {
    "units": Units,
    "tokens": Tokens,
    "attention": Attention,
    "rows": Rows,
    "similarity": Similarity,
    "control": Control,
    "decode": Decode,
    "states": States,
    "unit_maps": UnitMaps,
    "lens": Lens,
    "knockout": Knockout,
    "patching": Patching,
    "answer": Answer,
}
"""The groups of a tensor file and their classes; `units` and `tokens` are always there."""


@dataclass(frozen=True, slots=True)
class Variable:
    """One array of the schema: name, axes in order, type in the file, and whether a part may lack it."""

    name: str
    axes: tuple[str, ...]
    dtype: np.dtype
    optional: bool


@cache
def schema_of(part: type) -> tuple[Variable, ...]:
    """The arrays of a part, read from the annotations of its fields; its texts are left out."""
    hints = typing.get_type_hints(part)
    variables = (_variable(entry.name, hints[entry.name]) for entry in fields(part))
    return tuple(variable for variable in variables if variable is not None)


def _variable(name: str, hint: Any) -> Variable | None:
    optional = typing.get_origin(hint) in (types.UnionType, typing.Union)
    array = typing.get_args(hint)[0] if optional else hint
    if not hasattr(array, "dim_str"):
        return None
    return Variable(name, tuple(array.dim_str.split()), np.dtype(array.dtypes[0]), optional)
