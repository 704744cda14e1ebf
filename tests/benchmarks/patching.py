"""What a grid of patches costs: against plain forwards, and against the arithmetic of exact recomputation.

    python tests/benchmarks/patching.py [--quick]

The model has 12 layers, the prompt about 8,000 tokens; its units are put together to 16 sets of positions. A
forward is timed before and after each grid, in the same process; the vision tower's result is reused, so that
all is of the language model alone. The arithmetic counts, for each cell, the share of layers times the share
of positions (`hooks.expected_forwards`); beside it stands the same with attention counted by pairs of
positions, of which late positions have more than their share.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import argparse
import json
import platform
from typing import Any

import numpy as np
import torch
import transformers
from capture import (
    HEAD_DIM,
    HEADS,
    KEY_VALUE_HEADS,
    Case,
    forward,
    make_case,
    make_model,
    make_tokenizer,
    timed,
)
from scipy.stats import spearmanr

import hooks

LAYERS, SETS = 12, 16
WIDTH, INNER = 256, 1536
"""Less than half of a forward of 8,000 tokens is then attention. Of an 8B model's it is a seventh; of the
narrow model of `capture.py` nearly all, and late positions have more than their share of it."""
RIGHT, OTHERS = 40, (41, 42, 43)


def sixteen_sets(tokens: hooks.TokenMap) -> dict[str, np.ndarray]:
    """The video's positions cut into 16 runs of whole units."""
    units = np.array_split(np.arange(tokens.n_units), SETS)
    return {f"set:{place}": np.flatnonzero(np.isin(tokens.unit, some)) for place, some in enumerate(units)}


def corrupted(case: Case, positions: np.ndarray | None = None) -> dict[str, Any]:
    """The prompt with other pixels; with `positions`, only those of the units there."""
    pixels = case.inputs["pixel_values_videos"]
    other = pixels.flip(0)
    if positions is not None:
        patches = len(pixels) // case.tokens.n_units
        units = np.unique(case.tokens.unit[positions])
        here = torch.from_numpy(np.isin(np.arange(len(pixels)) // patches, units))
        other = torch.where(here[:, None], other, pixels)
    return {**case.inputs, "pixel_values_videos": other}


def by_pairs(layers: tuple[int, ...], first: np.ndarray, length: int) -> float:
    """As `hooks.expected_forwards`, attention counted by pairs of a query and a key it sees."""
    rest = np.where(first < 0, 0, length - first) / length
    return float((((LAYERS - np.asarray(layers)) / LAYERS)[:, None] * (2 * rest - rest**2)).sum())


def grid_cost(case: Case, corrupt: dict[str, Any], sets: dict[str, np.ndarray]) -> tuple[dict[str, Any], Any]:
    """One grid's seconds in plain forwards, and the arithmetic."""
    forward(case)
    plain = [timed(lambda: forward(case))]
    found: list[hooks.PatchGrid] = []
    grid = timed(
        lambda: found.append(
            hooks.patch_grid(
                case.model,
                case.inputs,
                corrupt,
                case.tokens,
                token_ids=(RIGHT, *OTHERS),
                sets=sets,
                check=False,
            )
        )
    )
    plain.append(timed(lambda: forward(case)))
    result = found[0]
    # Each of the two prompts is run once for the whole grid.
    told = 2 + hooks.expected_forwards(LAYERS, result.layers, result.first_changed, len(case.tokens))
    seconds = np.array(plain).mean(axis=0)
    return {
        "cells": result.logits.shape[0] * result.logits.shape[1],
        "arithmetic_forwards": round(told, 2),
        "arithmetic_attention_pairs": round(
            2 + by_pairs(result.layers, result.first_changed, len(case.tokens)), 2
        ),
        "counted_forwards": round(2 + result.forwards, 2),
        "plain_seconds": {
            name: [round(one[place], 3) for one in plain] for place, name in enumerate(("wall", "cpu"))
        },
        "measured_forwards": {
            "wall": round(grid[0] / seconds[0], 2),
            "cpu": round(grid[1] / seconds[1], 2),
        },
        "measured_over_arithmetic": {
            "wall": round(grid[0] / seconds[0] / told, 3),
            "cpu": round(grid[1] / seconds[1] / told, 3),
        },
    }, result


def screen_cost(
    case: Case, corrupt: dict[str, Any], sets: dict[str, np.ndarray], exact: hooks.PatchGrid, pairs: int
) -> dict[str, Any]:
    """The attribution screen in plain forwards, and its rank correlation to the exact cells."""
    found: list[hooks.Attribution] = []

    def screen() -> None:
        found.append(
            hooks.attribute(
                case.model, case.inputs, corrupt, case.tokens, right=RIGHT, others=OTHERS, sets=sets
            )
        )

    screen()
    forward(case)
    ratios = []
    for pair in range(pairs):
        runs = (lambda: forward(case), screen) if pair % 2 == 0 else (screen, lambda: forward(case))
        times = np.array([timed(run) for run in runs])[:: 1 if pair % 2 == 0 else -1]
        ratios.append(times[1] / times[0])
    effect = exact.logits[..., 0] - exact.logits[..., 1:].max(axis=-1)
    wall, cpu = np.median(ratios, axis=0)
    return {
        "pairs": pairs,
        "forwards": {"wall": round(float(wall), 2), "cpu": round(float(cpu), 2)},
        "rank_correlation_to_exact_cells": round(
            float(spearmanr(effect.ravel(), found[0].effect.ravel()).statistic), 3
        ),
        "cells": effect.size,
    }


def main() -> None:
    """Run all parts and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a shorter prompt, one of two grids")
    quick = parser.parse_args().quick
    tokenizer = make_tokenizer()
    model = make_model(tokenizer, layers=LAYERS, width=WIDTH, inner=INNER)
    case = make_case(model, tokenizer, 2_500 if quick else 8_000)
    sets = sixteen_sets(case.tokens)
    middle = list(sets)[SETS // 2]
    report: dict[str, Any] = {
        "model": f"Qwen3-VL, {LAYERS} layers, width {WIDTH}, MLP {INNER}, {HEADS} heads of {HEAD_DIM} on"
        f" {KEY_VALUE_HEADS} key/value heads, float32, vision reused",
        "tokens": len(case.tokens),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} torch threads,"
        f" load {os.getloadavg()[0]:.1f}",
        "versions": f"torch {torch.__version__}, transformers {transformers.__version__}",
    }
    with hooks.reuse_vision(model, entries=3):
        one = corrupted(case, sets[middle])
        report[f"grid, {middle} changed"], exact = grid_cost(case, one, sets)
        print(json.dumps(report, indent=2), flush=True)
        report["attribution, one set changed"] = screen_cost(case, one, sets, exact, 3 if quick else 5)
        print(json.dumps(report, indent=2), flush=True)
        if not quick:
            other = corrupted(case)
            report["grid, all changed"], exact = grid_cost(case, other, sets)
            report["attribution, all changed"] = screen_cost(case, other, sets, exact, 3)
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
