"""Do the heads that look at the evidence carry the answer? On the trained model.

Heads are scored as `+exp=heads` scores them, on one half of the videos, and silenced on the other half;
beside them as many random other heads of the same layers.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, partial

import numpy as np
import torch
from jaxtyping import Bool, Float

import hooks
import probes
from diagnostics.errors import ConfigError
from diagnostics.experiments.asking import log_odds
from diagnostics.experiments.heads import SCORES
from diagnostics.experiments.inside import Look, look_inside, option_logits
from diagnostics.experiments.outcome import with_local_evidence
from diagnostics.validation.bench import Asked, Bench, share
from diagnostics.validation.rows import Row
from diagnostics.video.perturb import blank_frames
from diagnostics.video.sampling import select_frames, uniform_plus_evidence

__all__ = ["choosing", "rows"]

_VIDEOS = 48
_SAMPLING = uniform_plus_evidence.Config(budget=24, evidence_frames=4)
"""The experiment's own for MiniHorizon."""
_ROLE = "question"
_SHARE = 0.1
"""Of all heads: two of sixteen, after a look at other videos: the best alone serves one task."""
_DRAWS = 5


def rows(bench: Bench) -> Iterable[Row]:
    """Top heads less random ones, chosen on all questions and on those of the item's own task."""
    asked = _asked(bench)
    scores = np.stack([_score(bench, one) for one in asked])
    halves = probes.video_halves([one.item.video_id for one in asked])
    tasks = np.array([one.item.task for one in asked])
    found: dict[str, list[list[float]]] = {"all": [], "task": []}
    with hooks.reuse_vision(bench.model().model):
        for place, one in enumerate(asked):
            bench.say(f"heads: silenced, {one.item.id}")
            silenced = cache(partial(_silenced, bench, _look(bench, one)))  # few choices of few heads
            for within in found:
                there = choosing(halves, tasks, place, within)
                if not there.any():
                    raise ConfigError(
                        f"No question of the other half of the videos can choose heads for {one.item.id}.",
                        remedy="Raise data.n_videos.",
                    )
                chosen = probes.top_heads(np.nanmean(scores[there], axis=0), _SHARE)
                drawn = [
                    probes.heads_like(chosen, scores.shape[-1], seed=[place, draw]) for draw in range(_DRAWS)
                ]
                random = np.mean([silenced(tuple(heads)) for heads in drawn], axis=0)
                found[within].append((silenced(tuple(sorted(chosen))) - random).tolist())
    for within, told in (("all", "on all questions"), ("task", "on those of the same task")):
        odds, right = np.array(found[within]).T
        yield Row.below(
            f"trained: log-odds, top evidence heads found {told} silenced, minus random ones of their layers",
            0.0,
            share(odds, asked),
            planted="below 0: the answer needs the heads that look",
            why="of the right option; paired; found on the other half of the videos",
            details=bench.details(
                asked,
                "uniform_plus_evidence",
                rows=_ROLE,
                share=_SHARE,
                draws=_DRAWS,
                accuracy_difference=float(right.mean()),
            ),
        )


def _asked(bench: Bench) -> list[Asked]:
    items = with_local_evidence(bench.items(videos=_VIDEOS), scored=True)[0]
    return [
        Asked(item, select_frames(uniform_plus_evidence, _SAMPLING, bench.reader.index(item.video), item))
        for item in items
    ]


def choosing(
    halves: Bool[np.ndarray, " item"], tasks: np.ndarray, place: int, within: str
) -> Bool[np.ndarray, " item"]:
    """The items that choose the heads to be silenced for this one: of the other half of the videos."""
    return (halves != halves[place]) & ((within == "all") | (tasks == tasks[place]))


def _look(bench: Bench, one: Asked) -> Look:
    assert one.selection is not None
    return look_inside(bench.context, one.item, bench.frames(one.item, one.selection))


def _score(bench: Bench, one: Asked) -> Float[np.ndarray, "layer head"]:
    """What each head moves from the evidence beyond its share of units, less the same on blank pictures."""
    bench.say(f"heads: scored, {one.item.id}")
    assert one.selection is not None
    frames, loaded, found = bench.frames(one.item, one.selection), bench.model(), []
    for shown in (frames, blank_frames(frames)):
        look = look_inside(bench.context, one.item, shown)
        rows = {_ROLE: look.tokens.rows(_ROLE)}
        with (
            torch.inference_mode(),
            hooks.attention_rows(loaded.model, look.tokens, rows, value_weighted=True) as captured,
        ):
            loaded.model(**look.inputs, logits_to_keep=1, use_cache=False)
        found.append((captured.value_mass(_ROLE), look.evidence_units))
    (mass, evidence), (blank, _) = found  # blank pictures hold none: the same units are asked for
    score = SCORES["moved"]
    return score(mass, evidence) - score(blank, evidence)


def _silenced(bench: Bench, look: Look, heads: tuple[tuple[int, int], ...]) -> Float[np.ndarray, " outcome"]:
    """Log-odds of the right option, and whether it is chosen, with these heads' outputs at zero."""
    loaded = bench.model()
    with torch.inference_mode(), hooks.scale_heads(loaded.model, dict.fromkeys(heads, 0.0)):
        logits = option_logits(loaded, look)
    return np.array([log_odds(logits, look.gold), float(np.argmax(logits) == look.gold)])
