"""Models of which some layers do not attend: what is captured, blocked and told is of the right layers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from diagnostics.errors import ConfigError
from diagnostics.experiments import knockout
from diagnostics.experiments.attention_anatomy import _by_layer
from diagnostics.experiments.context import Context
from diagnostics.experiments.decode_tables import Course, layer_table
from diagnostics.experiments.inside import knockout_notices

from .engine import open_context

MODELS = {"qwen3_5": (1, 3), "qwen3_vl": (0, 1, 2)}


@pytest.fixture(params=sorted(MODELS))
def context(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Context]:
    with open_context(tmp_path / request.param, (), model=f"miniature/{request.param}") as opened:
        yield opened


def test_a_knockout_is_called_partial_where_it_is(context: Context) -> None:
    found = knockout_notices(context.model)
    if context.folder.path.name == "qwen3_5":
        assert [one.partition(": what")[0] for one in found] == [
            "partial_knockout: 2 of 4 layers attend; what the others pass on by their state is not blocked"
        ]
    else:
        assert found == []


def test_windows_without_a_layer_that_attends_are_refused(context: Context) -> None:
    """Every second window of one layer misses layers 1 and 3."""
    with ExitStack() as stack:
        measurement = knockout._Measurement(context, knockout.Config(every=2, window=1), stack)
        if context.folder.path.name == "qwen3_5":
            with pytest.raises(ConfigError, match=r"attends, as \[1, 3\] do"):
                measurement._start(context.model.model)
        else:
            measurement._start(context.model.model)
            assert measurement._windows == {0: (0,), 2: (2,)}


def test_heads_that_look_are_blocked_in_their_own_layer() -> None:
    """The second row of what is captured of layers 3, 7 and 11 is layer 7, and there is a layer 1."""
    best = np.array([[1, 2, 0], [1, 0, 0], [1, 2, 1], [2, 3, 0]])
    found = _by_layer(best, (3, 7, 11))
    assert {layer: heads.tolist() for layer, heads in found.items()} == {7: [0, 2], 11: [3]}
    assert _by_layer(best[:0], (3, 7, 11)) == {}


def test_decode_drift_is_told_by_layer_number() -> None:
    names = ("visual_mass", "visual_log_lift", "evidence_mass", "evidence_share", "evidence_log_lift")
    ends = np.array([[0.5, 0.25], [0.5, 0.75]])
    courses = [
        Course(
            video=f"v{number}",
            spans={"reply": (1, 3)},
            rows={},
            layers={("reply", name): ends for name in names},
            numbers=(3, 7),
        )
        for number in range(2)
    ]
    table = layer_table(courses)
    mass = table[table["measure"] == "visual_mass"].set_index("layer")
    assert mass["drift"].to_dict() == {3: 0.0, 7: 0.5}
