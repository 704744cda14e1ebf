"""What capturing attention costs: time against a plain forward, time of eager attention, memory.

    python tests/benchmarks/capture.py [--quick]

Pairs of forwards are interleaved in one process, in alternating order, after a warm-up of each kind;
loading, preprocessing and the token map are outside. The vision tower's result is reused, so that
ratios are of the language model alone: with the tower in them they would look better. Wall-clock
ratios are the headline; CPU ratios stand beside them because other processes may be running.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import argparse
import json
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3VLConfig, Qwen3VLForConditionalGeneration

import hooks
from hooks.attention import _Session

ROWS = 64
LAYERS, WIDTH, HEADS, KEY_VALUE_HEADS, HEAD_DIM = 3, 64, 4, 4, 32
GRID = (11, 11)
SPECIAL = ("<|endoftext|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")


@dataclass
class Case:
    """A model and one prompt with a video of a given length."""

    model: Any
    inputs: dict[str, Any]
    tokens: hooks.TokenMap
    rows: np.ndarray


def make_model(
    tokenizer: PreTrainedTokenizerFast,
    attention: str = "sdpa",
    layers: int = LAYERS,
    width: int = WIDTH,
    inner: int = 2 * WIDTH,
) -> Any:
    """The trial's shape unless told otherwise: 3 layers, width 64, 4 heads of 32."""
    torch.manual_seed(0)
    ids = {
        f"{name}_token_id": tokenizer.convert_tokens_to_ids(f"<|{token}|>")
        for name, token in (
            ("image", "image_pad"),
            ("video", "video_pad"),
            ("vision_start", "vision_start"),
            ("vision_end", "vision_end"),
        )
    }
    config = Qwen3VLConfig(
        text_config={
            "vocab_size": 320, "hidden_size": width, "intermediate_size": inner,
            "num_hidden_layers": layers, "num_attention_heads": HEADS,
            "num_key_value_heads": KEY_VALUE_HEADS, "head_dim": HEAD_DIM,
            "max_position_embeddings": 1 << 17, "bos_token_id": None, "eos_token_id": 0,
            "pad_token_id": 0,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [6, 5, 5],
                                "mrope_interleaved": True},
        },
        vision_config={
            "depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "patch_size": 4,
            "spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": width,
            "num_position_embeddings": 64, "deepstack_visual_indexes": [0],
        },
        tie_word_embeddings=False,
        **ids,
    )  # fmt: skip
    return Qwen3VLForConditionalGeneration._from_config(config, attn_implementation=attention).eval()


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Bytes and Qwen's special tokens."""
    alphabet = {token: index for index, token in enumerate([*SPECIAL, *pre_tokenizers.ByteLevel.alphabet()])}
    bpe = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=bpe, additional_special_tokens=list(SPECIAL))


def make_case(model: Any, tokenizer: PreTrainedTokenizerFast, n_tokens: int) -> Case:
    """A prompt of about `n_tokens`: units of 121 tokens with their times, then a question of 80 bytes."""
    per_unit = GRID[0] * GRID[1]
    units = max(1, round((n_tokens - 80) / (per_unit + 16)))
    text = "".join(
        f"<{unit:.1f} seconds><|vision_start|>{'<|video_pad|>' * per_unit}<|vision_end|>"
        for unit in range(units)
    )
    question = ("What does the endoscope show after the second marker, and in which order is it? " * 2)[:80]
    ids = tokenizer(f"<|vision_start|>{text}<|vision_end|>{question}", return_tensors="pt")["input_ids"]
    generator = torch.Generator().manual_seed(units)
    inputs = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "mm_token_type_ids": (ids == model.config.video_token_id).int() * 2,
        "pixel_values_videos": torch.randn(units * per_unit * 4, 2 * 3 * 16, generator=generator),
        "video_grid_thw": torch.tensor([[units, 2 * GRID[0], 2 * GRID[1]]]),
    }
    tokens = hooks.token_map(model, tokenizer, inputs, question=question.strip())
    return Case(model, inputs, tokens, tokens.question[-ROWS:])


def forward(case: Case, **options: Any) -> None:
    """One forward; logits of the last position only, as in prefill."""
    with torch.no_grad():
        case.model(**case.inputs, logits_to_keep=1, use_cache=False, **options)


def captured(case: Case) -> None:
    """One forward with 64 rows captured in all layers, mass by unit and by token."""
    with hooks.attention_rows(case.model, case.tokens, case.rows):
        forward(case)


def timed(run: Callable[[], None]) -> tuple[float, float]:
    """Wall and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall, time.process_time() - cpu


def ratios(first: Callable[[], None], second: Callable[[], None], pairs: int) -> dict[str, Any]:
    """Second over first, pair by pair: median and interquartile range of wall and CPU ratios.

    `of_the_fastest` divides the fastest run of each kind: what is left where neighbours disturb both.
    """
    first()
    second()
    times = []
    for pair in range(pairs):
        order = (first, second) if pair % 2 == 0 else (second, first)
        measured = [timed(run) for run in order]
        times.append(measured if pair % 2 == 0 else measured[::-1])
    wall_cpu = np.array(times)  # pair, which, (wall, cpu)
    result: dict[str, Any] = {"pairs": pairs, "plain_seconds": round(float(np.median(wall_cpu[:, 0, 0])), 3)}
    for index, name in enumerate(("wall", "cpu")):
        ratio = wall_cpu[:, 1, index] / wall_cpu[:, 0, index]
        low, middle, high = np.percentile(ratio, [25, 50, 75])
        fastest = wall_cpu[:, 1, index].min() / wall_cpu[:, 0, index].min()
        result[name] = {
            "median": round(middle, 3),
            "iqr": [round(low, 3), round(high, 3)],
            "of_the_fastest": round(float(fastest), 3),
        }
    return result


def capture_peak_bytes(case: Case) -> int:
    """Most memory that one layer's capture held beyond what was held before it, from the allocator's log."""
    observe = _Session.observe

    def marked(*args: Any) -> None:
        with torch.profiler.record_function("capture_rows"):
            observe(*args)

    _Session.observe = marked  # type: ignore[method-assign]
    try:
        with torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
        ) as profile:
            captured(case)
    finally:
        _Session.observe = observe  # type: ignore[method-assign]
    events = profile.profiler.kineto_results.events()  # type: ignore[union-attr]
    memory = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    when = np.array([start for start, _ in memory])
    held = np.cumsum([size for _, size in memory])
    peak = 0
    for event in events:
        if event.name() == "capture_rows":
            begin, end = np.searchsorted(when, [event.start_ns(), event.end_ns()])
            before = held[begin - 1] if begin else 0
            peak = max(peak, int(held[begin:end].max() - before))
    return peak


def memory(model: Any, tokenizer: PreTrainedTokenizerFast, lengths: list[int]) -> dict[str, Any]:
    """Capture's own peak at several lengths, its slope, and the arithmetic beside it."""
    points = []
    for length in lengths:
        case = make_case(model, tokenizer, length)
        with hooks.reuse_vision(model):
            points.append((len(case.tokens), capture_peak_bytes(case)))
    tokens, peaks = np.array(points, dtype=float).T
    slope, intercept = np.polyfit(tokens, peaks, 1)
    residual = float(np.abs(peaks - (slope * tokens + intercept)).max() / peaks.max())
    return {
        "tokens": [int(t) for t in tokens],
        "peak_mib": [round(p / 2**20, 2) for p in peaks],
        "slope_bytes_per_token": round(float(slope), 1),
        "arithmetic_scores_bytes_per_token": HEADS // KEY_VALUE_HEADS * ROWS * 4,
        "largest_departure_from_the_line": round(residual, 4),
    }


def main() -> None:
    """Run all parts and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="shorter prompts, fewer pairs, no eager")
    quick = parser.parse_args().quick
    tokenizer = make_tokenizer()
    model = make_model(tokenizer)
    report: dict[str, Any] = {
        "model": f"Qwen3-VL, {LAYERS} layers, width {WIDTH}, {HEADS} heads of {HEAD_DIM} on"
        f" {KEY_VALUE_HEADS} key/value heads, float32, vision reused",
        "rows": ROWS,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} torch threads,"
        f" load {os.getloadavg()[0]:.1f}",
        "versions": f"torch {torch.__version__}, transformers {transformers.__version__}",
    }
    for length, pairs in ((2_000, 5), (8_000, 5)) if quick else ((8_000, 11), (30_000, 5)):
        case = make_case(model, tokenizer, length)
        with hooks.reuse_vision(model):
            result = ratios(lambda case=case: forward(case), lambda case=case: captured(case), pairs)
        report[f"capture/plain at {len(case.tokens)} tokens"] = result
        print(json.dumps({len(case.tokens): result}), flush=True)
    if not quick:
        case = make_case(model, tokenizer, 8_000)
        slow = Case(make_model(tokenizer, "eager"), case.inputs, case.tokens, case.rows)
        slow.model.load_state_dict(model.state_dict())
        with hooks.reuse_vision(model), hooks.reuse_vision(slow.model):
            report[f"eager/capture at {len(case.tokens)} tokens"] = ratios(
                lambda: captured(case), lambda: forward(slow, output_attentions=True), 3
            )
    lengths = [1_000, 2_000, 4_000, 8_000] if quick else [4_000, 8_000, 16_000, 32_000]
    report["extra memory of capture"] = memory(model, tokenizer, lengths)
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
