"""What the residual stream costs: all layers pooled by unit, and sink scores, against a plain forward.

    python tests/benchmarks/residual.py [--quick]

The manner, the model and the prompt are those of `capture.py`: interleaved pairs in one process after a
warm-up, the vision tower's result reused, logits of the last position only. Target: at most 1.15 at about
8,000 tokens. A width of 64 is the unfavourable case: the capture reads `layers * tokens * width` numbers, the
forward multiplies by weights that grow with the width.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import argparse
import json
import platform
from typing import Any

import torch
import transformers
from capture import (
    HEAD_DIM,
    HEADS,
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

TARGET = 1.15


def pooled(case: Case) -> None:
    """One forward with every layer's states pooled by unit."""
    with hooks.residual(case.model, case.tokens, pool="unit"):
        forward(case)


def scored(case: Case) -> None:
    """One forward with every visual token scored as a sink in every layer."""
    with hooks.sink_scores(case.model, case.tokens, hooks.Sinks((3, 17), threshold=2.5)):
        forward(case)


def kept_bytes(case: Case) -> int:
    """Size of the pooled states."""
    with hooks.residual(case.model, case.tokens, pool="unit") as stream:
        forward(case)
    return int(stream.states.nbytes)


def main() -> None:
    """Run all parts and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a short prompt, few pairs")
    quick = parser.parse_args().quick
    tokenizer = make_tokenizer()
    model = make_model(tokenizer)
    report: dict[str, Any] = {
        "model": f"Qwen3-VL, {LAYERS} layers, width {WIDTH}, {HEADS} heads of {HEAD_DIM}, float32, vision"
        " reused",
        "target": TARGET,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} torch threads,"
        f" load {os.getloadavg()[0]:.1f}",
        "versions": f"torch {torch.__version__}, transformers {transformers.__version__}",
    }
    case = make_case(model, tokenizer, 1_000 if quick else 8_000)
    with hooks.reuse_vision(model):
        for name, run in (("pooled", pooled), ("sinks", scored)):
            result = ratios(lambda: forward(case), lambda run=run: run(case), 3 if quick else 11)
            report[f"{name}/plain at {len(case.tokens)} tokens"] = result
            print(json.dumps({name: result}), flush=True)
        for length in (1_000, 2_000) if quick else (4_000, 8_000, 16_000):
            some = make_case(model, tokenizer, length)
            report[f"bytes kept at {len(some.tokens)} tokens, {some.tokens.n_units} units"] = kept_bytes(some)
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
