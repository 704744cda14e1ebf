"""From a surgery's name to its checkpoint's folder, made on first use."""

from __future__ import annotations

import math
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any

from diagnostics.errors import ConfigError
from diagnostics.testbed import WEIGHTS

__all__ = ["PREFIX", "SURGERIES", "named_checkpoint", "surgical_checkpoint"]

PREFIX = "tiny/"

SURGERIES: Mapping[str, bool] = MappingProxyType(
    {
        "decoy": True,
        "drifting": True,
        "first_stream": False,
        "single_road": False,
        "order_blind": False,
    }
)
"""Whether it takes a dose."""


def named_checkpoint(path: str, source: Path = WEIGHTS) -> Path:
    """The folder of the checkpoint that `tiny/NAME` or `tiny/NAME@DOSE` names.

    Raises:
        ConfigError: no such surgery, or a dose that is missing, unwanted or no number of at least 1.
    """
    name, mark, written = path.removeprefix(PREFIX).partition("@")
    if not mark:
        return surgical_checkpoint(name, source=source)
    try:
        dose = float(written)
    except ValueError:
        raise _bad_dose(name, written) from None
    return surgical_checkpoint(name, dose, source)


def surgical_checkpoint(name: str, dose: float | None = None, source: Path = WEIGHTS) -> Path:
    """The folder of a surgery's checkpoint, made from `source` if it is not in the cache yet.

    Args:
        name: one of `SURGERIES`.
        dose: by what `decoy` and `drifting` divide the logits: 1 or more. The others take none.
        source: a checkpoint of `python -m diagnostics.testbed`.

    Raises:
        ConfigError: no such surgery, or a dose that is missing, unwanted or below 1.
        CheckpointError: `source` cannot be loaded.
    """
    if name not in SURGERIES:
        near = get_close_matches(name, SURGERIES, n=1, cutoff=0.4)
        raise ConfigError(
            f"There is no surgery {name!r} of the tiny model.",
            remedy=f"Did you mean {PREFIX}{near[0]}?" if near else f"There are: {', '.join(SURGERIES)}.",
        )
    if SURGERIES[name]:
        if dose is None:
            raise ConfigError(f"{PREFIX}{name} needs a dose.", remedy=_dose_remedy(name))
        if not (math.isfinite(dose) and dose >= 1):
            raise _bad_dose(name, f"{dose:g}")
    elif dose is not None:
        raise ConfigError(f"{PREFIX}{name} takes no dose.", remedy=f"Write {PREFIX}{name}.")
    from diagnostics.models.made import made_once  # torch is needed from here on
    from diagnostics.testbed.surgery.source import code_digest, digest_of

    recipe: dict[str, Any] = {
        "surgery": name,
        "dose": dose,
        "source": digest_of(source),
        "code": code_digest(),
    }
    label = f"tiny-{name}" if dose is None else f"tiny-{name}-{dose:g}"
    return made_once(label, recipe, lambda folder: _write(name, dose, source, folder))


def _bad_dose(name: str, written: str) -> ConfigError:
    if not SURGERIES.get(name, True):
        return ConfigError(f"{PREFIX}{name} takes no dose.", remedy=f"Write {PREFIX}{name}.")
    return ConfigError(
        f"The dose {written!r} of {PREFIX}{name} is not a number of at least 1.",
        remedy=_dose_remedy(name),
    )


def _dose_remedy(name: str) -> str:
    return f"Write {PREFIX}{name}@16 to divide the logits by 16, {PREFIX}{name}@1 to leave them as they are."


def _write(name: str, dose: float | None, source: Path, folder: Path) -> None:
    from diagnostics.testbed.surgery import attention, roads, streams

    if name == "drifting":
        assert dose is not None
        attention.write_drifting(folder, source, dose)
    elif name == "decoy":
        assert dose is not None
        attention.write_decoy(folder, source, dose)
    elif name == "first_stream":
        streams.write_first_stream(folder, source)
    else:
        roads.write_constructed(folder, source, steps=name == "order_blind")
