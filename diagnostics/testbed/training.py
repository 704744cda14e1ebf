"""The training loop: seeded, resumable, on a core or two.

Every step draws from random numbers of its own, named by seed and step, so that a run that was stopped
and goes on takes the same steps as one that was not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from numpy.random import SeedSequence, default_rng
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import Qwen3VLForConditionalGeneration

from diagnostics.errors import ConfigError
from diagnostics.testbed.batches import Batch, make_batch
from diagnostics.testbed.checkpoint import new_model
from diagnostics.testbed.curriculum import Stage, draw
from diagnostics.testbed.footage import Footage
from diagnostics.testbed.speed import units_at_once

__all__ = ["Progress", "Trained", "first_token_logits", "learning_rate", "train"]

_RATE = 1e-3
_WARM_UP = 50


@dataclass(frozen=True, slots=True)
class Progress:
    """One step: its number over all stages, of how many, its stage, losses and shares answered rightly.

    `right` holds, for each of the step's parts (videos, look-ups), the share of lessons whose first
    answer token is the likeliest.
    """

    step: int
    steps: int
    stage: str
    loss: float
    right: tuple[float, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Trained:
    """The model, and how long its steps took, in this process and those that it went on from."""

    model: Qwen3VLForConditionalGeneration
    seconds: float


def train(
    footage: Footage,
    curriculum: Sequence[Stage],
    seed: int,
    state: Path | None,
    report: Callable[[Progress], None],
    *,
    save_every: int = 100,
) -> Trained:
    """Train from scratch, or go on where `state` says that a run of the same recipe stopped.

    Args:
        footage: the training split.
        state: file of weights, optimiser and step, written now and then; None keeps nothing.
        report: told of every step.
        save_every: steps between two writings of `state`.

    Raises:
        ConfigError: `state` belongs to another recipe.
    """
    model = new_model(seed)
    model.train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=_RATE, betas=(0.9, 0.98), weight_decay=0.01)
    done, elapsed = _restore(state, seed, curriculum, model, optimiser)
    steps = sum(stage.steps for stage in curriculum)
    with units_at_once(model):
        for step in range(done, steps):
            began = time.monotonic()
            for group in optimiser.param_groups:
                group["lr"] = learning_rate(curriculum, step)
            stage, _ = _stage_of(curriculum, step)
            random = default_rng(SeedSequence((seed, step)))
            batches = [make_batch(part, footage) for part in draw(stage, footage, random) if part]
            loss, right = _losses(model, batches)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            seconds = time.monotonic() - began
            elapsed += seconds
            if state is not None and ((step + 1) % save_every == 0 or step + 1 == steps):
                _keep(state, seed, curriculum, model, optimiser, step + 1, elapsed)
            report(Progress(step + 1, steps, stage.name, float(loss.detach()), right, seconds))
    return Trained(model.eval(), elapsed)


def learning_rate(curriculum: Sequence[Stage], step: int) -> float:
    """Of one step: up at the very beginning, level, and down at the end of each stage that cools down."""
    stage, left = _stage_of(curriculum, step)
    down = 0.05 + 0.95 * min(1.0, left / stage.cool_down) if stage.cool_down else 1.0
    return _RATE * min(1.0, (step + 1) / _WARM_UP) * down


def _stage_of(curriculum: Sequence[Stage], step: int) -> tuple[Stage, int]:
    """The stage of a step, and how many of its steps are left, this one included."""
    for stage in curriculum:
        if step < stage.steps:
            return stage, stage.steps - step
        step -= stage.steps
    raise IndexError(step)


def _hidden(model: Qwen3VLForConditionalGeneration, batch: Batch) -> Tensor:
    return model.model(
        input_ids=batch.ids,
        position_ids=batch.positions,
        pixel_values_videos=batch.pixels,
        video_grid_thw=batch.grids,
        use_cache=False,
    ).last_hidden_state


def _losses(
    model: Qwen3VLForConditionalGeneration, batches: Sequence[Batch]
) -> tuple[Tensor, tuple[float, ...]]:
    """Mean loss over the answers' tokens, lesson parts weighted by their number; shares right."""
    total, weight, right = torch.zeros(()), 0, []
    for batch in batches:
        logits = model.lm_head(_hidden(model, batch)[:, :-1][batch.learnt[:, 1:]])
        targets = batch.ids[:, 1:][batch.learnt[:, 1:]]
        total = total + cross_entropy(logits, targets, reduction="sum")
        weight += len(targets)
        with torch.no_grad():
            row = torch.nonzero(batch.learnt[:, 1:])[:, 0]
            first = torch.cat([torch.ones(1, dtype=torch.bool), row[1:] != row[:-1]])
            right.append(float((logits.argmax(-1) == targets)[first].float().mean()))
    return total / weight, tuple(right)


@torch.inference_mode()
def first_token_logits(model: Qwen3VLForConditionalGeneration, batch: Batch) -> Tensor:
    """Logits [row, vocabulary] of each lesson's first answer token."""
    with units_at_once(model):
        hidden = _hidden(model, batch)
    return model.lm_head(hidden[torch.arange(len(hidden)), batch.asked_at])


def _recipe(seed: int, curriculum: Sequence[Stage], step: int) -> list[str]:
    """Seed and every stage that has begun by `step`: what came so far depends on nothing else."""
    begun, first = [f"seed {seed}"], 0
    for stage in curriculum:
        if first < step:
            begun.append(repr(stage))
        first += stage.steps
    return begun


def _keep(
    state: Path,
    seed: int,
    curriculum: Sequence[Stage],
    model: torch.nn.Module,
    optimiser: torch.optim.Optimizer,
    step: int,
    elapsed: float,
) -> None:
    partial = state.with_suffix(".partial")
    kept = {"step": step, "elapsed": elapsed, "recipe": _recipe(seed, curriculum, step)}
    torch.save({**kept, "model": model.state_dict(), "optimiser": optimiser.state_dict()}, partial)
    partial.replace(state)


def _restore(
    state: Path | None,
    seed: int,
    curriculum: Sequence[Stage],
    model: torch.nn.Module,
    optimiser: torch.optim.Optimizer,
) -> tuple[int, float]:
    if state is None or not state.exists():
        return 0, 0.0
    kept = torch.load(state, weights_only=True)
    if kept["recipe"] != _recipe(seed, curriculum, kept["step"]):
        raise ConfigError(
            f"{state} belongs to another seed or curriculum.",
            remedy="Choose another --out, or remove the file.",
        )
    model.load_state_dict(kept["model"])
    optimiser.load_state_dict(kept["optimiser"])
    return int(kept["step"]), float(kept["elapsed"])
