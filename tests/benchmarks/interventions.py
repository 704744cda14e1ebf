"""What interventions cost: time of a knockout against one plain forward, and its memory.

    python tests/benchmarks/interventions.py [--quick | --smoke]

The model, the prompt and the manner are those of `capture.py`: pairs of forwards interleaved in one process,
in alternating order, after a warm-up of each kind; the vision tower's result is reused. Targets are for
knockout of the question's rows in all layers at about 8,000 tokens: at most 1.3 of a plain forward.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import argparse
import json
import platform
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import transformers
from capture import (
    HEAD_DIM,
    HEADS,
    KEY_VALUE_HEADS,
    LAYERS,
    WIDTH,
    Case,
    forward,
    make_case,
    make_model,
    make_tokenizer,
    ratios,
)

import hooks

TARGET = 1.3


def knockouts(case: Case) -> Mapping[str, tuple[Any, dict[str, Any]]]:
    """What is blocked, by name: edges, and options of `hooks.knock_out`."""
    quarter = np.arange(case.tokens.n_units)[:: max(1, case.tokens.n_units // 4)]
    some = hooks.Edges(case.tokens.question, np.flatnonzero(np.isin(case.tokens.unit, quarter)))
    return {
        "the whole video, question's rows": ("video_to_question", {}),
        "a quarter of the units, question's rows": (some, {}),
        "the whole video, question's rows, one head": ("video_to_question", {"heads": [1]}),
        "earlier units, all of the video's rows": ("cross_unit", {}),
        "one unit, all later rows": (hooks.units_to_everything(case.tokens, [1]), {}),
    }


def knocked_out(case: Case, edges: Any, options: Mapping[str, Any]) -> None:
    """One forward with edges blocked in all layers: opening, check and closing are inside."""
    with hooks.knock_out(case.model, case.tokens, edges, **options):
        forward(case)


def peak_bytes(run: Callable[[], None]) -> int:
    """Most memory held at once beyond what was held before, from the allocator's log."""
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        run()
    events = profile.profiler.kineto_results.events()  # type: ignore[union-attr]
    memory = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    held = np.cumsum([size for _, size in memory])
    return int(held.max(initial=0))


def memory(model: Any, tokenizer: Any, lengths: list[int]) -> dict[str, Any]:
    """Peak of a forward with a knockout less that of a plain one; the size of a dense mask beside it."""
    rows = []
    for length in lengths:
        case = make_case(model, tokenizer, length)
        with hooks.reuse_vision(model):
            forward(case)
            plain = peak_bytes(lambda case=case: forward(case))
            for name, (edges, options) in knockouts(case).items():
                more = peak_bytes(lambda c=case, e=edges, o=options: knocked_out(c, e, o)) - plain
                rows.append((len(case.tokens), name, more))
    return {
        name: {
            "tokens": [n for n, own, _ in rows if own == name],
            "extra_mib": [round(more / 2**20, 2) for _, own, more in rows if own == name],
            "dense_mask_mib": [round(n * n * 4 / 2**20, 1) for n, own, _ in rows if own == name],
        }
        for name in dict.fromkeys(own for _, own, _ in rows)
    }


def main() -> None:
    """Run all parts and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer pairs, shorter prompts for memory")
    parser.add_argument("--smoke", action="store_true", help="one pair at 1,000 tokens, no memory")
    asked = parser.parse_args()
    pairs = 1 if asked.smoke else 5 if asked.quick else 15
    tokenizer = make_tokenizer()
    model = make_model(tokenizer)
    case = make_case(model, tokenizer, 1_000 if asked.smoke else 8_000)
    report: dict[str, Any] = {
        "model": f"Qwen3-VL, {LAYERS} layers, width {WIDTH}, {HEADS} heads of {HEAD_DIM} on"
        f" {KEY_VALUE_HEADS} key/value heads, float32, vision reused",
        "tokens": len(case.tokens),
        "units": case.tokens.n_units,
        "question_rows": len(case.tokens.question),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} torch threads,"
        f" load {os.getloadavg()[0]:.1f}",
        "versions": f"torch {torch.__version__}, transformers {transformers.__version__}",
        "target": f"question's rows at most {TARGET} of a plain forward",
    }
    for name, (edges, options) in knockouts(case).items():
        with hooks.reuse_vision(model):
            result = ratios(lambda: forward(case), lambda e=edges, o=options: knocked_out(case, e, o), pairs)
        report[f"knockout/plain: {name}"] = result
        print(json.dumps({name: result}), flush=True)
    if not asked.smoke:
        lengths = [1_000, 2_000, 4_000] if asked.quick else [2_000, 4_000, 8_000, 16_000]
        report["extra memory"] = memory(model, tokenizer, lengths)
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
