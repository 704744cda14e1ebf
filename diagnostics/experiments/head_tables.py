"""The tables of `heads`: scores with their null, and what silencing did, paired on the same items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from jaxtyping import Float

import probes
from diagnostics.experiments.conditions import ALL, Answers
from diagnostics.experiments.context import Context
from diagnostics.experiments.outcome import Outcome
from diagnostics.experiments.pairs import Pair
from diagnostics.experiments.write_up import asked_of, write_up
from diagnostics.report.heads import heads_figure
from diagnostics.scoring import statistics
from diagnostics.store.summary import Metric

if TYPE_CHECKING:
    from diagnostics.experiments.heads import Chosen, Config, Scored

__all__ = ["finish", "masking_table", "score_table"]

_MEASURES = ("choice_accuracy", "gold_log_odds")
_HEADLINE = "top less random"
_CONTRASTS = ("top less none", "random less none", _HEADLINE)


def finish(
    context: Context,
    config: Config,
    pairs: Sequence[Pair],
    reasons: Mapping[str, str],
    chosen: Chosen,
    condition: Mapping[str, Any],
) -> Outcome:
    """Write summary, tables and figure of both phases."""
    asked = asked_of(context, pairs)
    scores = score_table(chosen.scored, config)
    masking = masking_table(asked.answers, condition, config)
    found = scores[(scores["task"] == ALL) & scores["above_null"]] if len(scores) else scores
    metrics = {"heads_above_null": Metric(float(len(found)), None, None, len(chosen.scored.items))}
    if len(chosen.scored.items):
        halves = probes.split_half(chosen.scored.score, chosen.scored.videos, seed=config.seed)
        metrics["split_half_correlation"] = Metric(halves.correlation, halves.low, halves.high, halves.splits)
    for _, row in masking[(masking["task"] == ALL) & (masking["contrast"] == _HEADLINE)].iterrows():
        told = f"{row['measure']}_{row['contrast'].replace(' ', '_')}_at_{row['share']:g}"
        metrics[told] = Metric(row["difference"], row["ci_low"], row["ci_high"], int(row["n"]))
    tables = {"heads": scores, "masking": masking, "chosen": chosen_table(chosen)}
    return write_up(
        context,
        asked,
        metrics=metrics,
        tables=tables,
        draw=lambda: heads_figure(scores, masking),
        baselines=[{"phase": "score"}],
        left_out=reasons,
    )


def score_table(scored: Scored, config: Config) -> pd.DataFrame:
    """One row a head, over all items and by task: score, its two parts, null, rank.

    `value` is the score less that on a blank video; `above_null`: it is above the 95th percentile of the
    largest mean over all heads when the evidence is moved round (`probes.head_null`). `image_centric`: the
    share of items in which the head looks at the video and not at its sinks.
    """
    from diagnostics.experiments.heads import SCORES  # which imports this module

    rows: list[dict[str, Any]] = []
    tasks = list(dict.fromkeys(scored.tasks))
    for task in [ALL, *tasks] if len(tasks) > 1 else [ALL]:
        some = np.flatnonzero([task in (ALL, own) for own in scored.tasks])
        if not len(some):
            continue
        videos = [scored.videos[place] for place in some]
        found = probes.head_scores(scored.score[some], videos, seed=config.seed)
        null = probes.head_null(
            [scored.masses[place] for place in some],
            [scored.evidence[place] for place in some],
            [scored.blanks[place] for place in some],
            score=SCORES[config.score],
            draws=config.null_draws,
            seed=config.seed,
        )
        order = np.argsort(np.argsort(-found.mean, axis=None, kind="stable")).reshape(found.mean.shape)
        for layer, head in np.ndindex(found.mean.shape):
            centric = scored.image_centric
            rows.append(
                {
                    "task": task,
                    "layer": scored.layers[layer],
                    "head": head,
                    "value": found.mean[layer, head],
                    "ci_low": found.ci_low[layer, head],
                    "ci_high": found.ci_high[layer, head],
                    "n": int(found.n[layer, head]),
                    "rank": int(order[layer, head]) + 1,
                    "on_video": float(np.nanmean(scored.raw[some, layer, head])),
                    "on_blank": float(np.nanmean(scored.blank[some, layer, head])),
                    "p": null.p[layer, head],
                    "threshold": null.threshold,
                    "above_null": bool(found.mean[layer, head] > null.threshold),
                    "image_centric": None if centric is None else float(centric[some, layer, head].mean()),
                }
            )
    columns = ["task", "layer", "head", "value", "ci_low", "ci_high", "n", "rank", "on_video"]
    columns += ["on_blank", "p", "threshold", "above_null", "image_centric"]
    return pd.DataFrame(rows, columns=columns)


def masking_table(answers: Answers, condition: Mapping[str, Any], config: Config) -> pd.DataFrame:
    """Top heads silenced, random heads of the same layers, and nothing, paired on the same items.

    One row a share, measure, contrast and task. A random draw counts by its mean over the draws. Where a
    layer has too few other heads for a control, `n` is 0. `p` flips signs over videos; `p_holm` is adjusted
    over the shares.
    """
    rows = []
    for task, some in answers.by_task():
        for measure in _MEASURES:
            for contrast in _CONTRASTS:
                found = []
                for share in config.shares:
                    sides = _columns(some, condition, measure, share, config.draws)
                    after, before = contrast.split(" less ")
                    found.append(
                        statistics.paired_difference(
                            sides[before], sides[after], some.videos, seed=config.seed
                        )
                    )
                adjusted = statistics.holm([one.p for one in found]).adjusted
                for share, one, p_holm in zip(config.shares, found, adjusted, strict=True):
                    rows.append(
                        {
                            "share": share,
                            "task": task,
                            "measure": measure,
                            "contrast": contrast,
                            "reference": one.mean_a,
                            "value": one.mean_b,
                            "difference": one.difference,
                            "ci_low": one.ci_low,
                            "ci_high": one.ci_high,
                            "p": one.p,
                            "p_holm": p_holm,
                            "n": one.n,
                            "videos": one.n_clusters,
                        }
                    )
    return pd.DataFrame(rows)


def _columns(
    answers: Answers, condition: Mapping[str, Any], measure: str, share: float, draws: int
) -> dict[str, Float[np.ndarray, " item"]]:
    def column(told: str) -> Float[np.ndarray, " item"]:
        return answers.column(condition, f"{measure}@heads={told}")

    each = [column(f"random,share={share:g},draw={draw}") for draw in range(draws)]
    return {
        "none": column("none"),
        "top": column(f"top,share={share:g}"),
        "random": np.mean(each, axis=0),  # NaN where an item has no control
    }


def chosen_table(chosen: Chosen) -> pd.DataFrame:
    """The heads that were silenced in each half, the best first: chosen on the other half."""
    rows = [
        {
            "silenced_in_half": int(half),
            "group": group,
            "share": share,
            "place": place,
            "layer": layer,
            "head": head,
        }
        for (half, group, share), heads in chosen.top.items()
        for place, (layer, head) in enumerate(heads, start=1)
    ]
    return pd.DataFrame(rows, columns=["silenced_in_half", "group", "share", "place", "layer", "head"])
