"""What long videos cost with each family's miniature: maps of 2,048 frames, capture up to 32,000 tokens.

    python tests/benchmarks/families.py [--quick] [MODEL_TYPE ...]

Each measurement is a process of its own, so that its peak is its own. *Map*: a prompt by the real processor;
CPU time of `hooks.token_map`, and the peak of what Python and NumPy allocate in it (tracemalloc). *Capture*:
the resident peak of a plain forward, how much higher it is in a forward with 256 captured rows
(Linux: the kernel's high-water mark, reset before each), and the size of what is kept. Scores of one chunk of
rows are the capture's one large tensor, linear in the length; little of it is seen where a forward has let go
of as much before. Growth of the map is that of the last doubling: 2 is linear. What a model takes for itself
is its own affair (a mask of length times length, in those with sliding windows).
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import argparse
import json
import re
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import torch

import hooks
from diagnostics.models.miniatures import miniatures
from hooks.row_mass import ROW_CHUNK
from tests.family_bench import FamilyBench, clip, make_bench

FRAMES = (512, 1024, 2048)
TOKENS = (8_000, 16_000, 32_000)
QUICK_FRAMES, QUICK_TOKENS = (64, 128), (1_000, 2_000)
MAPPED, CAPTURED = (64, 96), (224, 336)
"""Height and width of frames: few tokens each where many frames are mapped, many where tokens are wanted."""
ROWS = 256
"""Query rows that are captured, the last of the prompt: enough for their cost to be seen."""
MEGABYTE = 1 << 20


def mapping(name: str, frames: int) -> dict[str, float]:
    """The token map of a prompt of so many frames."""
    bench = make_bench(name)
    inputs = bench.inputs(clip(frames, MAPPED))
    bench.roles(bench.inputs(clip(4, MAPPED)), 4)  # imports and caches
    started = time.process_time()
    tokens = bench.roles(inputs, frames)
    seconds = time.process_time() - started
    tracemalloc.start()
    bench.roles(inputs, frames)
    _, peak = tracemalloc.get_traced_memory()
    return {"tokens": len(tokens), "units": tokens.n_units, "seconds": seconds, "bytes": peak}


def capture(name: str, wanted: int) -> dict[str, float]:
    """Peaks of a plain forward over about so many tokens, and of a forward with capture after it."""
    bench = make_bench(name)
    inputs, frames = long_prompt(bench, wanted)
    tokens = bench.roles(inputs, frames)
    end = np.arange(len(tokens) - ROWS, len(tokens))
    with torch.inference_mode(), hooks.reuse_vision(bench.model, entries=2):
        bench.model(**inputs, logits_to_keep=1, use_cache=False)  # what is allocated once
        forget_peak()
        bench.model(**inputs, logits_to_keep=1, use_cache=False)
        plain = resident_peak()
        forget_peak()
        with hooks.attention_rows(bench.model, tokens, rows={"end": end}) as captured:
            bench.model(**inputs, logits_to_keep=1, use_cache=False)
    watched = resident_peak()
    heads = bench.family.text_model(bench.model).config.num_attention_heads
    return {
        "tokens": len(tokens),
        "plain": plain,
        "added": watched - plain,
        "scores": ROW_CHUNK * heads * len(tokens) * 4,
        "kept": captured.unit_mass().nbytes + captured.token_mass().nbytes,
    }


def forget_peak() -> None:
    """Begin the process's high-water mark anew."""
    Path("/proc/self/clear_refs").write_text("5")


def resident_peak() -> int:
    """Bytes at the high-water mark."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024


def long_prompt(bench: FamilyBench, wanted: int) -> tuple[dict[str, Any], int]:
    """A prompt of about `wanted` tokens, and its frames: families shrink long videos by other rules."""
    frames = 16
    inputs = bench.inputs(clip(frames, CAPTURED))
    for _ in range(3):
        length = inputs["input_ids"].shape[1]
        if abs(length - wanted) < wanted / 20:
            break
        frames = max(2, round(frames * wanted / length))
        inputs = bench.inputs(clip(frames, CAPTURED))
    return inputs, frames


def in_its_own_process(what: str, name: str, size: int) -> dict[str, float]:
    """One measurement."""
    asked = [sys.executable, __file__, "--one", what, name, str(size)]
    run = subprocess.run(asked, check=False, capture_output=True, text=True)
    if run.returncode:
        raise SystemExit(f"{what} of {name} at {size} failed:\n{run.stderr[-2000:]}")
    return json.loads(run.stdout.splitlines()[-1])


def megabytes(size: float) -> str:
    """With one digit."""
    return f"{size / MEGABYTE:.1f}"


def table(names: list[str], frames: tuple[int, ...], tokens: tuple[int, ...]) -> None:
    """Print a line for each family as it is measured."""
    added = "/".join(f"{size:,}" for size in tokens)
    print(f"added MB: at about {added} tokens; scores MB: one chunk of rows at the longest")
    print(
        f"{'family':<18} {'map of':>7} {'tokens':>8} {'CPU s':>7} {'peak MB':>8} {'growth':>7}"
        f" | {'capture of':>10} {'plain MB':>9} {'added MB':>20} {'scores MB':>10} {'kept MB':>8}"
    )
    for name in names:
        half, whole = (in_its_own_process("mapping", name, size) for size in frames[-2:])
        runs = [in_its_own_process("capture", name, size) for size in tokens]
        most = runs[-1]
        print(
            f"{name:<18} {frames[-1]:>7} {int(whole['tokens']):>8} {whole['seconds']:>7.2f}"
            f" {megabytes(whole['bytes']):>8} {whole['bytes'] / half['bytes']:>7.2f}"
            f" | {int(most['tokens']):>10} {megabytes(most['plain']):>9}"
            f" {'/'.join(megabytes(run['added']) for run in runs):>20}"
            f" {megabytes(most['scores']):>10} {megabytes(most['kept']):>8}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--one", action="store_true", help="one measurement in this process, as JSON")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.one:
        what, name, size = asked.names
        print(json.dumps({"mapping": mapping, "capture": capture}[what](name, int(size))))
        return
    sizes = (QUICK_FRAMES, QUICK_TOKENS) if asked.quick else (FRAMES, TOKENS)
    table(asked.names or list(miniatures()), *sizes)


if __name__ == "__main__":
    main()
