"""Probes from outside the repository, in a run of attention drift: `exp.probes=[my_package.my_probe]`.

A probe is a module with one function, `measures(seen: Seen) -> Mapping[str, float]`. What it returns stands
among the item's measures, and so in the summary, the tables and the report. docs/own_probe.md has one.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
from jaxtyping import Bool, Float, Int

import hooks
import probes
from diagnostics.data.items import Item
from diagnostics.errors import ConfigError
from diagnostics.experiments.definitions import Definition, head_mask
from diagnostics.experiments.drift_measures import RoleMass, ShownUnits

__all__ = ["OwnProbe", "Seen", "load_probes", "own_measures"]


@dataclass(frozen=True, eq=False)
class Seen:
    """What a probe is given of one item, by the headline's query rows (`exp.role`).

    Attributes:
        item: the question.
        shown: what each temporal unit shows: times and evidence, by slot.
        mass: attention on each unit, of every layer and head.
        taken: the layers and heads of the headline (`exp.layers`, `exp.heads`).
        token_mass: attention on each visual token, the mean over heads.
        unit, row, col: where each visual token is.
        features: embeddings of the visual tokens by name (`exp.feature`, `exp.features`).
    """

    item: Item
    shown: ShownUnits
    mass: RoleMass
    taken: Bool[np.ndarray, "layer head"]
    token_mass: Float[np.ndarray, "layer token"]
    unit: Int[np.ndarray, " token"]
    row: Int[np.ndarray, " token"]
    col: Int[np.ndarray, " token"]
    features: Mapping[str, Float[np.ndarray, "token dim"]]

    @classmethod
    def of(
        cls,
        item: Item,
        shown: ShownUnits,
        headline: Definition,
        captured: hooks.Captured,
        features: hooks.VisualFeatures,
        tokens: hooks.TokenMap,
    ) -> Seen:
        """From what was captured of the item."""
        mass = RoleMass(captured.unit_mass(headline.role), captured.rest_mass(headline.role))
        visual = tokens.visual
        return cls(
            item=item,
            shown=shown,
            mass=mass,
            taken=head_mask(headline, mass.units),
            token_mass=captured.token_mass(headline.role),
            unit=tokens.unit[visual],
            row=tokens.row[visual],
            col=tokens.col[visual],
            features=dict(features),
        )


class OwnProbe(Protocol):
    """What the module of a probe offers."""

    __name__: str

    def measures(self, seen: Seen) -> Mapping[str, float]:
        """Numbers of one item by name; NaN where one is undefined."""
        ...


def load_probes(names: Sequence[str]) -> tuple[OwnProbe, ...]:
    """The modules of these dotted names.

    Raises:
        ConfigError: one does not import, or has no `measures`.
    """
    return tuple(_load(name) for name in names)


def _load(name: str) -> OwnProbe:
    if not all(part.isidentifier() for part in name.split(".")):
        raise ConfigError(
            f"{name!r}, named by exp.probes, is no dotted name of a module.",
            remedy="Write it as in an import: exp.probes=[mine.distance].",
        )
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Only the probe's own absence is a typo; a library that it needs is another matter.
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise
        raise ConfigError(
            f"There is no module {name!r}, named by exp.probes.",
            remedy="Put its folder on PYTHONPATH, or run from the folder that it lies in.",
        ) from error
    if not callable(getattr(module, "measures", None)):
        raise ConfigError(
            f"{name!r} is no probe: it has no function `measures`.", remedy="See docs/own_probe.md."
        )
    return cast(OwnProbe, module)


def own_measures(modules: Sequence[OwnProbe], seen: Seen, taken: Collection[str]) -> dict[str, float]:
    """The numbers of all probes on one item.

    Args:
        taken: names that other measures of the item have.

    Raises:
        ConfigError: a name is taken, or is one of the project's own, or holds one of the marks that names of
            variants are made with.
    """
    found: dict[str, float] = {}
    for module in modules:
        for name, value in module.measures(seen).items():
            marked = bool(set(name) & set("@=,"))
            if marked or name in found or name in taken or name in probes.MEASURES:
                raise ConfigError(
                    f"The probe {module.__name__!r} calls a measure {name!r}, which "
                    + ("has one of the marks @ = ,." if marked else "is another one's name."),
                    remedy="Give it another name.",
                )
            found[name] = float(value)
    return found
