"""Peak rates and memory of some GPUs, from their vendor's data sheets (`gpus.csv`)."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from diagnostics.errors import ConfigError
from diagnostics.strict import near_match

__all__ = ["Gpu", "gpu_named"]

_FILE = Path(__file__).with_name("gpus.csv")


@dataclass(frozen=True)
class Gpu:
    """One kind of GPU.

    Attributes:
        title: as the vendor calls it.
        flops: dense bfloat16 operations a second, at most.
        memory: bytes. bandwidth: of the memory, bytes a second.
        source: the data sheet.
    """

    name: str
    title: str
    flops: float
    memory: float
    bandwidth: float
    source: str


def gpu_named(name: str) -> Gpu:
    """The GPU called `name` in `gpus.csv`.

    Raises:
        ConfigError: there is none.
    """
    known = _known()
    if name not in known:
        raise ConfigError(f"No data sheet of a GPU {name!r} here.", remedy=near_match(name, list(known)))
    return known[name]


def _known() -> dict[str, Gpu]:
    with _FILE.open(encoding="utf-8", newline="") as file:
        return {
            row["name"]: Gpu(
                name=row["name"],
                title=row["title"],
                flops=float(row["bf16_tflops"]) * 1e12,
                memory=float(row["memory_gb"]) * 1e9,
                bandwidth=float(row["bandwidth_gb_s"]) * 1e9,
                source=row["source"],
            )
            for row in csv.DictReader(file)
        }
