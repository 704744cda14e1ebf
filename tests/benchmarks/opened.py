"""`open_run` on 1,253 items with tensors: seconds, and bytes read for one number.

    python -m tests.benchmarks.opened

Prints the time for the records as a table and for one number of one pair, each beside reading the same from
all tensor files, and how many bytes the number took.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import xarray  # noqa: F401 - its own files are not to be counted

import diagnostics
from diagnostics.store import Attention, PairTensors, Record, RunFolder, Tokens, Units, read_tensors

ITEMS, LAYERS, HEADS, ROLES, UNITS, TOKENS = 1_253, 12, 8, ("question", "last"), 32, 512


def made(item: str, rng: np.random.Generator) -> PairTensors:
    units = int(rng.integers(UNITS // 2, UNITS + 1))
    per_unit = TOKENS // UNITS
    mass = rng.dirichlet(np.ones(units + 1), size=(LAYERS, HEADS, len(ROLES))).astype(np.float32)
    frames = np.arange(2 * units).reshape(units, 2)
    of_unit = np.repeat(np.arange(units, dtype=np.int32), per_unit)
    return PairTensors(
        item_id=item,
        condition={},
        layer=np.arange(LAYERS, dtype=np.int32),
        role=ROLES,
        units=Units(frames, frames / 2.0, frames / 2.0, frames == 5),
        tokens=Tokens(of_unit + 5, of_unit, of_unit * 0, of_unit * 0),
        attention=Attention(
            mass[..., :-1],
            mass[..., -1],
            rng.random((LAYERS, len(ROLES), units * per_unit), dtype=np.float32),
        ),
    )


def main() -> None:
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        with RunFolder.open(path, {}, "hash", experiment="made") as run:
            for number in range(ITEMS):
                name = f"item-{number}"
                measures = {f"measure_{place}": float(place) for place in range(30)}
                record = Record(item_id=name, video_id=f"video-{number // 3}", measures=measures)
                run.save(record, made(name, rng))
        size = sum(file.stat().st_size for file in path.rglob("*.h5"))
        print(f"{ITEMS} items, {size / 2**20:.0f} MiB of tensors")

        begun = time.perf_counter()
        opened = diagnostics.open_run(path)
        records = opened.records
        print(f"records as a table, {records.shape}: {time.perf_counter() - begun:.2f} s")

        before, begun = bytes_read(), time.perf_counter()
        value = float(opened.tensors("attention").unit_mass[700, 3, 2, 1, 4])
        single = time.perf_counter() - begun
        print(f"one number, {value:.4f}: {single:.3f} s, {(bytes_read() - before) / 2**10:.0f} KiB read")

        begun = time.perf_counter()
        layer = opened.tensors("attention").unit_mass.sel(layer=3, role="last").values
        sliced = time.perf_counter() - begun
        begun = time.perf_counter()
        for file in records["tensor_file"]:
            read_tensors(path / file)
        whole = time.perf_counter() - begun
        print(f"one layer of all items {layer.shape}: {sliced:.2f} s; all files whole: {whole:.2f} s")
        print(f"ratio, one layer to whole files: {sliced / whole:.2f}")


def bytes_read() -> int:
    """Bytes this process has read, the page cache's among them."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("rchar")).split()[1])


if __name__ == "__main__":
    main()
