"""Attention on the evidence: the capture itself, and the log-lift with the lesion and without it.

Planted: 32 evenly spaced frames (16 units) of a video whose lesion is known to the frame; and the same
video with the lesion painted out, rendered and encoded again from the same plan without it, in which there
is nothing to attend to. Heads: the quarter of all heads with the highest log-lift on other videos
(`named_heads`), so that no head is chosen by what it is then measured on. Rows: the question's. Pooling:
per head, then averaged.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float

import hooks
import probes
from diagnostics.data.items import Item
from diagnostics.data.minihorizon.files import write_video
from diagnostics.errors import ConfigError
from diagnostics.models.loading import LoadedModel, load_model
from diagnostics.models.prompting import prepare_inputs
from diagnostics.validation.bench import UNIT, Asked, Bench, Observed, share
from diagnostics.validation.rows import Row
from diagnostics.video.selection import Selection

__all__ = [
    "BUDGET",
    "heads_text",
    "measured_items",
    "named_heads",
    "painted_out",
    "per_head_log_lift",
    "rows",
]

BUDGET = 32
"""Frames: U = 16 units."""

_TASKS = ("Hist", "Size", "Site")
_FINDING, _MEASURING = 12, 24
_DRAWS = 4000


def rows(bench: Bench) -> Iterable[Row]:
    """The capture against the model's own attention, then the log-lift with and without a lesion."""
    yield from _capture(bench)
    yield from _lesion(bench)


# -- the heads


def named_heads(bench: Bench, loaded: LoadedModel, role: str = "question") -> Bool[np.ndarray, "layer head"]:
    """The quarter of the heads with the highest mean log-lift on the first videos with a single lesion.

    Checks measure on later videos (`measured_items`).

    Args:
        role: whose rows.
    """
    lifts = np.stack([per_head_log_lift(bench, loaded, item, role=role) for item in finding_items(bench)])
    mean = np.nanmean(lifts, axis=0)
    taken = np.zeros(mean.shape, dtype=bool)
    taken.ravel()[np.argsort(-mean, axis=None, kind="stable")[: max(1, mean.size // 4)]] = True
    return taken


def _films(bench: Bench) -> tuple[list[str], list[str]]:
    """Videos with a single lesion: 12 (or half of them) to find heads on, and the next 24 to measure on."""
    films = list(dict.fromkeys(item.video_id for item in bench.items("Hist")))
    finding = min(_FINDING, len(films) // 2)
    if not finding:
        raise ConfigError(
            "Heads are found on other videos than they are measured on, and there is one with a lesion.",
            remedy="Raise data.n_videos.",
        )
    return films[:finding], films[finding : finding + _MEASURING]


def finding_items(bench: Bench) -> list[Item]:
    """One colour question on each of the first videos."""
    return [item for item in bench.items("Hist") if item.video_id in _films(bench)[0]]


def measured_items(bench: Bench, *tasks: str) -> list[Item]:
    """Questions on the next videos with a single lesion."""
    return [item for item in bench.items(*(tasks or _TASKS)) if item.video_id in _films(bench)[1]]


def per_head_log_lift(
    bench: Bench,
    loaded: LoadedModel,
    item: Item,
    selection: Selection | None = None,
    role: str = "question",
) -> Float[np.ndarray, "layer head"]:
    """`evidence_log_lift` of every head.

    Args:
        selection: what is shown; 32 evenly spaced frames by default.
        role: whose rows.
    """
    frames = bench.frames(item, selection or bench.uniform(item, BUDGET))
    seen = bench.observe(loaded, item, frames, roles=(role,))
    mass, shown = seen.captured.unit_mass(role), seen.shown
    return probes.evidence_alignment(mass, shown.evidence, shown=shown.filled).log_lift


def heads_text(taken: Bool[np.ndarray, "layer head"]) -> list[str]:
    """Names of heads: `L2H3`."""
    return [f"L{layer}H{head}" for layer, head in np.argwhere(taken).tolist()]


# -- the capture


def _capture(bench: Bench) -> Iterator[Row]:
    """Capture against no capture, and against the eager kernel, which gives its whole attention."""
    loaded, item = bench.model(), measured_items(bench)[0]
    backend = bench.context.config.backend
    frames = bench.frames(item, bench.uniform(item, BUDGET))
    prompt = prepare_inputs(loaded, item, frames, instruction=backend.instruction, max_new_tokens=1)
    tokens = hooks.token_map(
        loaded.model, loaded.processor, prompt.inputs, question=prompt.question, options=prompt.options
    )
    check = hooks.verify_capture(loaded.model, prompt.inputs, tokens, ("question", "last"))
    details = {"item": item.id, "budget": BUDGET}
    yield Row.exact(
        "capture: largest difference of the logits with and without it",
        "0, bit for bit",
        0.0,
        check.max_logit_difference,
        tolerance=0.0,
        why="the capture delegates to the same kernel",
        details=details,
    )
    eager = load_model(replace(bench.context.config.model, attention="eager"))
    with torch.inference_mode():
        own = eager.model(**prompt.inputs, output_attentions=True, use_cache=False).attentions
        with hooks.attention_rows(loaded.model, tokens, rows=("question",)) as captured:
            loaded.model(**prompt.inputs, use_cache=False)
    attention = torch.stack([layer[0] for layer in own])[:, :, tokens.question].mean(dim=2).numpy()
    units = probes.unit_sums(attention[..., tokens.visual], tokens.unit[tokens.visual], tokens.n_units)
    yield Row.exact(
        "capture: largest difference of unit mass from eager attention",
        "0",
        0.0,
        float(np.abs(units - captured.unit_mass("question")).max()),
        tolerance=1e-5,
        why="two float32 kernels round differently",
        n=units.size,
        details=details,
    )


# -- the lesion


def _lesion(bench: Bench) -> Iterator[Row]:
    loaded = bench.model()
    bench.say("evidence: finding the heads")
    taken = named_heads(bench, loaded)
    items = measured_items(bench, "Hist")
    with_lesion, without, nulls = [], [], []
    with tempfile.TemporaryDirectory(prefix="validation-") as scratch:
        for item in items:
            bench.say(f"evidence: {item.id}")
            selection = bench.uniform(item, BUDGET)
            seen = bench.observe(loaded, item, bench.frames(item, selection))
            with_lesion.append(seen.log_lift(taken))
            painted = painted_out(bench, item, Path(scratch))
            empty = bench.observe(loaded, item, bench.frames(item, selection, painted))
            without.append(empty.log_lift(taken))
            nulls.append(_turned(bench, item, empty, taken))
    asked = [Asked(item, bench.uniform(item, BUDGET)) for item in items]
    details = bench.details(
        asked,
        "uniform",
        heads=heads_text(taken),
        rows="question",
        pooling="per head, then averaged",
        heads_found_on=f"{len(finding_items(bench))} other videos",
        units=BUDGET // UNIT,
    )
    yield Row.above(
        "evidence_log_lift, U = 16, evidence heads",
        0.0,
        share(with_lesion, asked),
        planted="above 0: the lesion is there",
        why="0 is uniform attention",
        details=details,
    )
    gap = np.array(with_lesion) - np.array(without)
    yield Row.above(
        "evidence_log_lift, with the lesion minus painted out",
        0.0,
        share(gap, asked),
        planted="above 0",
        why="the same frames, questions and positions: only the lesion differs",
        details=details,
    )
    low, high = null_interval(nulls)
    estimate = share(without, asked)
    yield Row(
        name="evidence_log_lift, U = 16, lesion painted out",
        planted="that of any other moment without a step",
        target=float(np.mean([null.mean() for null in nulls])),
        measured=estimate.mean,
        low=low,
        high=high,
        judged="value",
        ci_low=estimate.ci_low,
        ci_high=estimate.ci_high,
        n=estimate.n,
        why="null interval: 95% of the means with each item's window turned to a random other moment",
        details=details,
    )


def painted_out(bench: Bench, item: Item, folder: Path) -> Path:
    """The item's video without its lesions, all else from the same plan and the same random numbers."""
    procedure = replace(bench.procedure(item), lesions=())
    path = folder / f"{procedure.name}.mp4"
    if not path.exists():
        write_video(bench.data.of_video(procedure.index), procedure, path)
    return path


def _turned(
    bench: Bench, item: Item, empty: Observed, taken: Bool[np.ndarray, "layer head"]
) -> Float[np.ndarray, " shift"]:
    """The log-lift of the evidence's window turned to each other place along the units.

    Places that touch the window, or a step, are left out: lesions never overlap steps, so that a window on
    a step would be another thing to look at, not another moment without any.
    """
    evidence = empty.shown.evidence
    held = np.asarray(evidence.any(axis=1))
    steps = np.zeros(evidence.shape, dtype=bool)
    for step in bench.procedure(item).steps:
        frames = empty.shown.frame_index
        steps |= (frames >= step.start_frame) & (frames < step.end_frame)
    occupied = held | steps.any(axis=1)
    turned = [np.roll(evidence, shift, axis=0) for shift in range(1, len(held))]
    free = [mask for mask in turned if not (mask.any(axis=1) & occupied).any()]
    return np.array([empty.log_lift(taken, mask) for mask in free])


def null_interval(nulls: Sequence[Float[np.ndarray, " shift"]], seed: int = 0) -> tuple[float, float]:
    """Where 95% of the means over items lie when each item's value is drawn from its own null."""
    random = np.random.default_rng(seed)
    drawn = np.stack([random.choice(null, _DRAWS) for null in nulls if len(null)])
    low, high = np.quantile(drawn.mean(axis=0), [0.025, 0.975])
    return float(low), float(high)
