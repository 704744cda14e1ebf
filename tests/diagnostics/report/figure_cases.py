"""Made-up tables of every experiment's figure, so that no run is needed to draw it.

A case returns the figure and what has to be found in it: a row (value, low, high) for each number drawn.
Numbers are random, so that none is found by accident.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from diagnostics.report.anatomy import anatomy_figure
from diagnostics.report.benchmark import benchmark_figure
from diagnostics.report.decode_drift import decode_figure
from diagnostics.report.faithfulness import faithfulness_figure
from diagnostics.report.grounding import grounding_figure
from diagnostics.report.heads import heads_figure
from diagnostics.report.knockout import knockout_figure
from diagnostics.report.lens import lens_figure
from diagnostics.report.merged import merged_figure
from diagnostics.report.order import order_figure
from diagnostics.report.patching import patching_figure
from diagnostics.report.probing import probing_figure
from diagnostics.report.redundancy import redundancy_figure
from diagnostics.report.robustness import robustness_figure
from diagnostics.report.samplers import samplers_by_task_figure, samplers_figure
from diagnostics.report.scaling import scaling_figure
from diagnostics.report.sparsity import sparsity_figure
from diagnostics.report.style import MAX_RUNS
from diagnostics.report.swap import swap_figure
from diagnostics.validation.figure import validation_figure
from diagnostics.validation.rows import Row

__all__ = ["CASES", "Kind"]

Kind = Literal["many", "one", "crowded", "undefined"]
"""As of a real run; of one item, without intervals; with as many and as long names as there may be; without
any number, as where every item failed at something."""

Drawn = tuple[Figure, np.ndarray]

LONG = "A task whose name was never meant for the margin of a figure ($x_2$, <b>bold</b>)"


class _Numbers:
    """Random numbers with intervals; none of one item."""

    def __init__(self, kind: Kind) -> None:
        self.random = np.random.default_rng(7)
        self.crowded = kind == "crowded"
        self.n = {"one": 1, "undefined": 0}.get(kind, 40)
        self.defined = kind != "undefined"
        self.interval = kind not in ("one", "undefined")

    def told(
        self,
        middle: float,
        name: str = "value",
        ends: Sequence[str] = ("ci_low", "ci_high"),
        half: float = 0.06,
    ) -> dict[str, float]:
        value = middle + self.random.uniform(-0.03, 0.03) if self.defined else np.nan
        low, high = self.random.uniform(0.3, 1, 2) * half if self.interval else (np.nan, np.nan)
        return {name: value, ends[0]: value - low, ends[1]: value + high}

    def share(self, *at: float) -> float:
        return float(np.clip(0.15 + 0.7 * np.mean(at), 0.1, 0.9))

    def tasks(self, most: int = 13) -> list[str]:
        if not self.crowded:
            return ["PR", "SD", "RL", "IR"]
        return [f"{LONG} {n}" if n % 3 == 0 else f"T{n}" for n in range(most)]


def _rows(table: pd.DataFrame, name: str, ends: Sequence[str] = ("ci_low", "ci_high")) -> np.ndarray:
    return table[[name, *ends]].to_numpy(dtype=float, copy=True)


def _around(name: str) -> tuple[str, str]:
    return f"{name}_low", f"{name}_high"


def _together(parts: Iterable[np.ndarray]) -> np.ndarray:
    return np.concatenate(list(parts))


def _peak(place: float, middle: float, width: float) -> float:
    return float(np.exp(-0.5 * ((place - middle) / width) ** 2))


def benchmark(kind: Kind) -> Drawn:
    made = _Numbers(kind)
    rows = []
    for place, task in enumerate([*made.tasks(), "all"]):
        told = made.told(made.share(place / 13), "accuracy", _around("accuracy"))
        rows.append({"task": task, "items": made.n, "videos": made.n, "chance": 0.2 + place / 97, **told})
    table = pd.DataFrame(rows)
    return benchmark_figure(table), _rows(table, "accuracy", _around("accuracy"))


def frame_scaling(kind: Kind) -> Drawn:
    made = _Numbers(kind)
    budgets = [1, 2, 4, 8, 16, 32, 64, 128, 256, 384] if made.crowded else [8, 16, 32, 64]
    rows = []
    kinds = [(frames, held) for frames in ("uniform", "nested") for held in ("budget", "fixed")]
    for place, (frames, held) in enumerate(kinds):
        for rung, budget in enumerate(budgets):
            told = made.told(made.share(rung / len(budgets) - place / 9), "accuracy")
            told |= made.told(made.share(rung / len(budgets)), "evidence_shown", ("shown_low", "shown_high"))
            tokens = 280.5 / (1 if held == "fixed" else 1 + rung)
            condition = {"task": "all", "frames": frames, "resolution": held, "budget": budget}
            rows.append({**condition, **told, "tokens_per_unit": tokens + place, "n": made.n})
    ladders = pd.DataFrame(rows)
    trend = {
        "task": "all", "frames": "uniform", "resolution": "budget",
        **made.told(0.17, "slope", _around("slope")),
        "best_budget": 64 if made.defined else np.nan,
        "best_low": 32 if made.interval else np.nan,
        "best_high": 64 if made.interval else np.nan,
    }  # fmt: skip
    return scaling_figure(ladders, pd.DataFrame([trend])), _together(
        [_rows(ladders, "accuracy"), _rows(ladders, "evidence_shown", ("shown_low", "shown_high"))]
    )


def evidence_grounding(kind: Kind) -> Drawn:
    made = _Numbers(kind)
    every = {"of": "all", "group": "all", "n": made.n}
    shown = ["chance", "text", "blank", "uniform", "swapped", "oracle_matched", "oracle_images"]
    levels = pd.DataFrame(
        [
            {**every, "shown": name, **made.told(0.3 + place / 15, "accuracy")}
            for place, name in enumerate(shown)
        ]
    )
    names = ["language prior", "video", "sampling", "distraction and length", "interpretation"]
    gaps = [0.06, 0.26, 0.09, -0.1, 0.34]
    steps = pd.DataFrame(
        [
            {**every, "step": name, **made.told(gap, "difference")}
            for name, gap in zip(names, gaps, strict=True)
        ]
    )
    chain = _rows(steps, "difference")
    # Each step begins where the last one ended, and its interval with it; the chain ends at all right.
    starts = 1 - chain[::-1, 0].cumsum()[::-1]
    chain[:, 1:] += starts[:, None]
    return grounding_figure(levels, steps), _together([_rows(levels, "accuracy"), chain])


def evidence_swap(kind: Kind) -> Drawn:
    made = _Numbers(kind)
    measures = ("accuracy", "gold_log_odds", "foil_log_odds", "foil_answered")
    rows = []
    arms = [(arm, dose) for arm in ("evidence", "foil") for dose in (0, 1, 2, 4, 8)]
    for arm, units in [("text", None), ("uniform", None), ("oracle", None), *arms]:
        row: dict[str, Any] = {"arm": arm, "units": units, "n": made.n}
        for measure in measures:
            level = 0.5 + (0.04 if arm == "evidence" else -0.04) * (units or 0)
            known = measure in measures[:2] or arm == "foil"
            told = made.told(level if known else np.nan, measure, _around(measure))
            row |= told
        rows.append(row)
    doses = pd.DataFrame(rows)
    places = pd.DataFrame(
        [{"tenth": n, **made.told(0.5 + n / 40, "accuracy"), "n": made.n} for n in range(10)]
    )
    bias = {"evidence_alone": 0.72, "range": 25.0, "composite": 334.0, "shape": "u_shaped", "n": made.n}
    true, foil = (doses[doses["arm"] == arm] for arm in ("evidence", "foil"))
    drawn = [_rows(true, name, _around(name)) for name in measures[:2]]
    drawn += [_rows(foil, name, _around(name)) for name in measures]
    return swap_figure(doses, places, pd.DataFrame([bias])), _together([*drawn, _rows(places, "accuracy")])


def temporal_order(kind: Kind) -> Drawn:
    made = _Numbers(kind)
    groups = ["all", "order_dependent", "order_free", "time_addressed", "unflagged"]
    rows = []
    for group in groups[:1] if kind == "one" else groups:
        for order in ("original", "reversed", "blocks", "local", "full"):
            for clock in ("slot", "carry") if order != "original" else ("",):
                told = {"items": group, "order": order, "by": "unit" if clock else "", "timestamps": clock}
                flips = made.random.uniform(-0.05, 0.3)
                told |= {**made.told(0.6, "accuracy"), "n": made.n}
                beyond = made.told(flips, "flips_beyond_floor", ("beyond_low", "beyond_high"), half=0.1)
                rows.append(told | beyond)
    table = pd.DataFrame(rows)
    moved = table[table["order"] != "original"]
    flipped = _rows(moved, "flips_beyond_floor", ("beyond_low", "beyond_high"))
    return order_figure(table), _together([_rows(moved, "accuracy"), flipped])


def mcq_robustness(kind: Kind) -> Drawn:
    made = _Numbers(kind)
    names = ["standard", "shuffled", "open_ended", "none_of_the_above", "all_of_the_above"]
    forms = pd.DataFrame(
        [
            {"asked": name, "n": made.n, **made.told(0.7 - place / 9, "accuracy"),
             **made.told(-place / 9, "change", ("change_low", "change_high"))}
            for place, name in enumerate(names)
        ]
    )  # fmt: skip
    letters = "ABCDEFGHIJ" if made.crowded else "ABCD"
    shares = made.random.dirichlet(np.ones(len(letters)), 2)
    positions = pd.DataFrame(
        {"asked": "standard", "letter": list(letters), "right": shares[0], "answered": shares[1]}
    )
    bare = np.full((len(letters), 2), np.nan)
    drawn = [np.column_stack([positions[name], bare]) for name in ("right", "answered")]
    return robustness_figure(forms, positions), _together([_rows(forms, "accuracy"), *drawn])


def redundancy_dose(kind: Kind) -> Drawn:
    made = _Numbers(kind)
    measures = ("accuracy", "gold_log_odds", "evidence_log_lift", "unit_similarity")
    rows = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        for by in ("near_duplicates", "distinct") if share else ("",):
            row: dict[str, Any] = {"replaced": share, "by": by, "n": made.n}
            for measure in measures:
                row |= made.told(0.6 - 0.2 * share * (by == "near_duplicates"), measure, _around(measure))
            rows.append(row)
    doses = pd.DataFrame(rows)
    contrasts = pd.DataFrame(
        [{"replaced": 1.0, "measure": name, **made.told(-0.2, "difference")} for name in measures]
    )
    return redundancy_figure(doses, contrasts), _together(_rows(doses, one, _around(one)) for one in measures)


def sampling(kind: Kind) -> Drawn:
    made = _Numbers(kind)
    measures = ("accuracy", "any_window_hit", "temporal_coverage")
    labels = ["uniform", "keyframe", "aks", "oracle"]
    if made.crowded:
        labels = [f"a sampler with its own long label and parameters, {n}" for n in range(13)]
    rows = []
    for place, label in enumerate(labels):
        for budget in (8, 16, 32, 64, 128, 256, 512) if made.crowded else (32, 64):
            row: dict[str, Any] = {"sampler": label, "budget": budget, "n": made.n}
            for measure in measures:
                row |= made.told(made.share(place / 13), measure, _around(measure))
            rows.append(row)
    table = pd.DataFrame(rows)
    return samplers_figure(table), _together(_rows(table, one, _around(one)) for one in measures)


def sampling_by_task(kind: Kind) -> Drawn:
    made = _Numbers(kind)
    rows = [
        {"task": task, "sampler": sampler, "budget": budget, "n": made.n,
         **made.told(0.4 + place / 10, "accuracy")}
        for task in made.tasks(6) for place, sampler in enumerate(("uniform", "aks", "oracle"))
        for budget in (32, 64)
    ]  # fmt: skip
    table = pd.DataFrame(rows)
    return samplers_by_task_figure(table), _rows(table, "accuracy")


def evidence_sparsity(kind: Kind) -> Drawn:
    made = _Numbers(kind)
    ratios: Mapping[str, list[float]] = {
        "exact": np.exp(made.random.normal(-4, 1, made.n)).tolist(),
        "about": np.exp(made.random.normal(-3, 1, made.n)).tolist(),
    }
    every = np.concatenate(list(ratios.values()))
    middles = [[every.mean(), np.nan, np.nan], [np.median(every), np.nan, np.nan]]
    return sparsity_figure(ratios, n_items=3 * made.n, bins=20), np.array(middles)


def attention_anatomy(kind: Kind) -> Drawn:
    made = _Numbers(kind)
    budgets = [1, 2, 4, 8, 16, 32, 64, 128, 256, 384] if made.crowded else [8, 16, 32, 64]
    outcomes = ("not_sampled", "unattended", "without_effect", "effective")
    rows, told = [], []
    for place, budget in enumerate(budgets):
        parts = made.random.dirichlet([3.0 + place, 2, 1, 1 + place])
        extra = {"effective_wrong": 0.1, "unattended_effective": 0.02, "undecided": 0.0}
        for name, share in {**dict(zip(outcomes, parts, strict=True)), **extra}.items():
            low, high = (0.8 * share, min(1.0, 1.1 * share)) if made.interval else (np.nan, np.nan)
            row = {"budget": budget, "task": "all", "outcome": name, "share": share, "n": made.n}
            rows.append({**row, "ci_low": low, "ci_high": high})
        for name, level in {
            "unit_fraction_80": 0.6, "unit_fraction_80_uniform": 0.8, "unit_similarity": 0.8,
            "patch_similarity": 0.7, "evidence_log_lift": 0.4, "evidence_log_lift_without_sinks": 0.5,
            "attended_log_lift": 1.1, "effect_evidence": 0.3, "effect_attended": 0.2, "effect_random": 0.1,
        }.items():  # fmt: skip
            told.append({"budget": budget, "measure": name, "n": made.n, **made.told(level, "mean")})
    drift = pd.DataFrame(told)
    table = pd.DataFrame(rows)
    bars = []
    for _, own in table[table["outcome"].isin(outcomes)].groupby("budget"):
        parts = _rows(own, "share")
        # Intervals stand at the parts' upper edges, that of the last part at its lower edge, upside down.
        parts[:-1, 1:] += (parts[:, 0].cumsum() - parts[:, 0])[:-1, None]
        parts[-1, 1:] = 1 - parts[-1, :0:-1]
        bars.append(parts)
    return anatomy_figure(table, drift), _together([*bars, _rows(drift, "mean")])


def decode_drift(kind: Kind) -> Drawn:
    made = _Numbers(kind)
    rows, by_layer = [], []
    for measure in ("visual_mass", "evidence_share"):
        rows.append(
            {"phase": "prefill", "from": 0, "to": 0, "measure": measure, "n": made.n} | made.told(0.3)
        )
        lengths = {"reply": 30, "reasoning": 24, "answer": 6, "forced": 4} if made.crowded else {"reply": 12}
        if kind == "one":
            lengths = {"reply": 1}
        for phase, length in lengths.items():
            for row in range(1, length + 1):
                told = {"phase": phase, "from": row, "to": row, "measure": measure, "n": made.n}
                rows.append(told | made.told(0.3 - row / 200))
            for layer in range(36 if made.crowded else 12) if measure == "visual_mass" else ():
                ends = {"prefill": made.random.uniform(0.1, 0.4), "decode": made.random.uniform(0.1, 0.4)}
                by_layer.append({"phase": phase, "layer": layer, "measure": measure, **ends, "n": made.n})
    table, layers = pd.DataFrame(rows), pd.DataFrame(by_layer)
    told = table[table["phase"] != "reply"] if made.crowded else table  # its parts stand for the reply
    return decode_figure(table, layers), _rows(told, "value")


def _heads(made: _Numbers, layers: int, heads: int, **told: Any) -> pd.DataFrame:
    rows = [
        {
            "layer": layer,
            "head": head,
            **told,
            **made.told(float(0.3 * made.random.standard_t(3)), half=0.2),
            "n": made.n,
        }
        for layer in range(layers)
        for head in range(heads)
    ]
    table = pd.DataFrame(rows)
    return table.assign(above_null=table["value"] > 1.5)


def heads(kind: Kind) -> Drawn:
    made = _Numbers(kind)
    scores = _heads(made, *((36, 32) if made.crowded else (12, 8)), task="all")
    rows = []
    for share in (0.02, 0.05, 0.1, 0.2):
        for measure in ("choice_accuracy", "gold_log_odds"):
            for contrast, level in (
                ("top less none", -2 * share),
                ("random less none", 0),
                ("top less random", -2 * share),
            ):
                told = {"share": share, "task": "all", "measure": measure, "contrast": contrast, "n": made.n}
                rows.append({**told, **made.told(level, "difference")})
    masking = pd.DataFrame(rows)
    drawn = _rows(masking[masking["contrast"] != "top less random"], "difference")
    return heads_figure(scores, masking), _together([drawn, _bare(scores["value"])])


def _bare(values: Any) -> np.ndarray:
    """Numbers that are drawn without an interval."""
    values = np.asarray(values, dtype=float)
    return np.column_stack([values, np.full((len(values), 2), np.nan)])


def knockout(kind: Kind) -> Drawn:
    made = _Numbers(kind)
    paths = ["video_to_question", "video_to_last", "question_to_last", "across_frames"]
    if made.crowded:
        paths += [
            "options_to_last",
            "evidence_to_question",
            "evidence_to_options",
            "without_evidence_to_options",
        ]
    layers = range(0, 36, 3) if made.crowded else range(0, 12, 2)
    rows = [
        {"path": path, "control": control, "layer": layer, "of": "correct", "task": "all", "n": made.n,
         **made.told(-40 * depth * (control == "no") - 2, "change", half=6)}
        for path in paths for control in ("no", "random")
        for layer, depth in [*((one, _peak(one, len(path) % 9, 2)) for one in layers), ("all", 1)]
    ]  # fmt: skip
    names = ["text", "base", "all_but_question", "all_but_last", "no_video", "evidence", "random"]
    roads = pd.DataFrame(
        [{"road": name, "task": "all", "n": made.n, **made.told(0.5, "accuracy")} for name in names]
    )
    single = _heads(made, *((36, 32) if made.crowded else (12, 8)), path="video_to_last")
    single = single.assign(change=single["value"], difference=single["value"] - 0.1, p_holm=0.2)
    flow = pd.DataFrame(rows)
    drawn = _rows(flow[flow["layer"] != "all"], "change")
    found = knockout_figure(flow, roads, None if kind == "one" else single)
    more = [] if kind == "one" else [_bare(single["difference"])]
    return found, _together([drawn, _rows(roads, "accuracy"), *more])


def lens(kind: Kind) -> Drawn:
    made = _Numbers(kind)
    layers = range(37 if made.crowded else 13)
    every = {"task": "all", "n": made.n}
    course = pd.DataFrame(
        [{"read": read, "layer": layer, "chance": 0.25, **every,
          **made.told(0.25 + most * layer / len(layers))}
         for read, most in (("letter", 0.2), ("word", 0.5)) for layer in layers]
    )  # fmt: skip
    units = pd.DataFrame(
        [{"units": who, "layer": layer, "measure": "word_share", **every,
          **made.told(0.25 + most * layer / len(layers))}
         for who, most in (("evidence", 0.5), ("other", 0.1)) for layer in layers]
    )  # fmt: skip
    found = _heads(made, *((36, 32) if made.crowded else (12, 8)), read="word")
    drawn = [_rows(course, "value"), _rows(units, "value"), _bare(found["value"])]
    return lens_figure(course, units, found), _together(drawn)


def patching(kind: Kind) -> Drawn:
    made = _Numbers(kind)
    layers = range(36 if made.crowded else 12)
    grid = pd.DataFrame(
        [{"layer": layer, "place": place, "n": made.n,
          **made.told(_peak(place, 0, 1) * (1 - layer / len(layers)), "effect")}
         for layer in layers for place in (range(-30, 31) if made.crowded else range(-5, 6))]
    )  # fmt: skip
    levels = {
        "evidence": (1.0, 0.0),
        "others": (0.1, 0.0),
        "question": (0.0, 0.2),
        "options": (0.0, 0.5),
        "last": (0.0, 1.0),
    }
    course = pd.DataFrame(
        [{"of": "right", "task": "all", "set": name, "layer": layer, "n": made.n,
          **made.told(first + (last - first) * layer / len(layers), "effect")}
         for name, (first, last) in levels.items() for layer in layers]
    )  # fmt: skip
    drawn = [_rows(course, "effect"), _bare(grid["effect"])]
    return patching_figure(grid, course, "foil_evidence", "denoising", 3), _together(drawn)


def probing(kind: Kind) -> Drawn:
    made = _Numbers(kind)
    targets = ["evidence", "time", "order", "direction", "coin"]
    if made.crowded:
        targets += [LONG[: 30 + n] for n in range(8)]
    rows = []
    for target in targets:
        for layer in range(37 if made.crowded else 13):
            row: dict[str, Any] = {"target": target, "layer": layer, "chance": 0.5}
            rise = 0.35 * (1 - 1 / (1 + layer)) * (target != "coin")
            for name, level in (("score", 0.5 + rise), ("shuffled", 0.5), ("position_only", 0.5 + rise / 3)):
                row |= made.told(level, name, _around(name))
            rows.append(row)
    table = pd.DataFrame(rows)
    return probing_figure(table), _together(
        _rows(table, name, _around(name)) for name in ("score", "shuffled", "position_only")
    )


def faithfulness(kind: Kind) -> Drawn:
    made = _Numbers(kind)
    maps = ["attention", "value_weighted", "relevancy", "occlusion"]
    if made.crowded:
        maps += ["rollout", "token_activation", "gradient_times_input", "attention_without_sinks"]
    curves, areas = [], []
    for direction in ("deletion", "insertion"):
        for place, name in enumerate([*maps, "random", "oracle"]):
            for x in np.linspace(0, 1, 9):
                told = {"map": name, "direction": direction, "fraction": x}
                curves.append(told | made.told(0.8 - x * place / 9, "outcome"))
            told = {"task": "all", "direction": direction, "map": name, "n": made.n}
            areas.append(told | made.told(0.1 * place, "normalised"))
    lines, table = pd.DataFrame(curves), pd.DataFrame(areas)
    drawn = [
        name
        for name in maps
        if name in ("occlusion", "attention", "relevancy", "rollout", "token_activation")
    ]
    ends = table["map"].isin(["random", "oracle"])
    return faithfulness_figure(lines, table), _together(
        [_rows(lines[lines["map"].isin(drawn)], "outcome"), _rows(table[~ends], "normalised")]
    )


def _merged(kind: Kind, by_task: bool) -> Drawn:
    made = _Numbers(kind)
    runs = [f"{LONG} {n}" for n in range(MAX_RUNS)] if made.crowded else ["qwen-7b", "qwen-72b"]
    rungs = ["uniform, budget=8", "uniform, budget=16", "nested, budget=8", "nested, budget=16"]
    tasks = made.tasks() if by_task else ["all"]
    rows = [
        {"task": task, "condition": rung, "run": run, "n": made.n, **made.told(0.5 + place / 20, "accuracy")}
        for task in tasks for place, rung in enumerate(rungs) for run in runs
    ]  # fmt: skip
    table = pd.DataFrame(rows)
    return merged_figure(table, runs, by_task=by_task), _rows(table, "accuracy")


def compare(kind: Kind) -> Drawn:
    return _merged(kind, by_task=False)


def compare_by_task(kind: Kind) -> Drawn:
    return _merged(kind, by_task=True)


def validate(kind: Kind) -> Drawn:
    made = _Numbers(kind)
    rows, drawn = [], []
    for place in range(12 if made.crowded else 3):
        told = made.told(0.5, half=0.02)
        ends = {"ci_low": told["ci_low"], "ci_high": told["ci_high"]} if made.interval else {}
        rows.append(
            Row(name=f"{LONG} {place}" if made.crowded else f"check {place}", planted="half", target=0.5,
                measured=told["value"], low=0.42, high=0.58, judged="value", why="made up", group="measured",
                **ends)
        )  # fmt: skip
        drawn.append([told["value"], told["ci_low"], told["ci_high"]])
    rows += [
        Row(name=f"by hand {n}", planted=str(n), target=float(n), measured=float(n), low=n - 1e-9,
            high=n + 1e-9, judged="value", why="arithmetic", group="by hand")
        for n in range(6)
    ]  # fmt: skip
    return validation_figure(rows), np.array(drawn)


CASES: Mapping[str, Callable[[Kind], Drawn]] = {
    case.__name__: case
    for case in (
        attention_anatomy, benchmark, compare, compare_by_task, decode_drift, evidence_grounding,
        evidence_sparsity, evidence_swap, faithfulness, frame_scaling, heads, knockout, lens, mcq_robustness,
        patching, probing, redundancy_dose, sampling, sampling_by_task, temporal_order, validate,
    )
}  # fmt: skip
"""By experiment; the figures of `attention_drift` are drawn from curves (`test_drift.py`, `test_item.py`)."""
