"""How often the statistics are right: simulated studies with a known truth.

    python tests/benchmarks/coverage.py [--simulations 2000] [--out docs/coverage.md]

Each study has videos with a luck of their own and unevenly many questions, answered right or wrong in two
conditions. The table says how often the 95% intervals hold the truth, and how often the tests reject a true
null hypothesis at 5%. The exit status is 1 where the interval of a paired difference, or of an accuracy,
covers less than 93% or more than 97%, from 20 videos on.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from scipy import stats

import probes
from diagnostics.scoring import statistics

VIDEOS = (12, 20, 40, 100, 340)
RESAMPLES = 500
NONE = 2
"""Resamples where the interval is not looked at and the test is exact."""
LEVELS = (4, 8, 16, 32, 64)
MARGIN = 0.05
CONCENTRATION = 3.0
"""Of the beta distribution of a video's chance to be answered: variance m(1-m)/4 over videos."""

Findings = dict[str, bool]


def sizes(generator: np.random.Generator, n_videos: int) -> np.ndarray:
    """Questions of each video: at least one, 3.7 on average as in MedHorizon, a long tail."""
    return 1 + generator.negative_binomial(1.5, 1.5 / (1.5 + 2.7), n_videos)


def luck(generator: np.random.Generator, means: np.ndarray, n_videos: int, shared: float) -> np.ndarray:
    """Chance of a right answer `[condition, video]`: beta with the means given, correlated by a copula."""
    common = generator.normal(size=n_videos)
    own = generator.normal(size=(len(means), n_videos))
    uniform = stats.norm.cdf(np.sqrt(shared) * common + np.sqrt(1 - shared) * own)
    return stats.beta.ppf(uniform, CONCENTRATION * means[:, None], CONCENTRATION * (1 - means[:, None]))


def answers(
    generator: np.random.Generator, means: list[float], n_videos: int, shared: float = 0.6
) -> tuple[np.ndarray, list[int]]:
    """Right or wrong `[condition, item]`, and the video of each item."""
    chances = luck(generator, np.asarray(means), n_videos, shared)
    videos = np.repeat(np.arange(n_videos), sizes(generator, n_videos))
    outcomes = generator.random((len(means), videos.size)) < chances[:, videos]
    return outcomes.astype(float), videos.tolist()


def differences(generator: np.random.Generator, n_videos: int, seed: int) -> Findings:
    """A true difference of 8 points."""
    (a, b), videos = answers(generator, [0.40, 0.48], n_videos)
    ours = statistics.paired_difference(a, b, videos, seed=seed, n_resamples=RESAMPLES)
    plain = probes.clustered_mean(b - a, videos, seed=seed, n_resamples=RESAMPLES)
    error = (b - a).std(ddof=1) / np.sqrt(len(a))
    accuracy = probes.clustered_mean(a, videos, seed=seed, n_resamples=RESAMPLES, expanded=True)
    return {
        "cover|paired difference, `paired_difference`": ours.ci_low <= 0.08 <= ours.ci_high,
        "cover|paired difference, plain percentiles": plain.ci_low <= 0.08 <= plain.ci_high,
        "cover|paired difference, items taken as independent": abs((b - a).mean() - 0.08) <= 1.96 * error,
        "cover|accuracy, `probes.clustered_mean(expanded=True)`": accuracy.ci_low <= 0.40 <= accuracy.ci_high,
    }


def sized(generator: np.random.Generator, n_videos: int, seed: int) -> Findings:
    """Long videos with many questions are harder: the mean over items is not the mean over videos."""
    long = generator.random(n_videos) < 0.5
    chances = np.where(long, generator.beta(0.9, 2.1, n_videos), generator.beta(1.8, 1.2, n_videos))
    videos = np.repeat(np.arange(n_videos), np.where(long, 6, 2))
    right = (generator.random(videos.size) < chances[videos]).astype(float)
    truth = (6 * 0.3 + 2 * 0.6) / 8
    ours = probes.clustered_mean(right, videos.tolist(), seed=seed, n_resamples=RESAMPLES, expanded=True)
    return {"cover|accuracy, harder videos with more questions": ours.ci_low <= truth <= ours.ci_high}


def nulls(generator: np.random.Generator, n_videos: int, seed: int) -> Findings:
    """No difference on average, though every video has one."""
    (a, b), videos = answers(generator, [0.45, 0.45], n_videos, shared=0.3)
    ours = statistics.paired_difference(a, b, videos, seed=seed, n_resamples=NONE)
    assert ours.mcnemar is not None
    (c, d), other = answers(generator, [0.40, 0.40 + MARGIN], n_videos)
    same = statistics.equivalence(d - c, other, margin=MARGIN)
    return {
        "reject|sign flip over videos": ours.p <= 0.05,
        "reject|McNemar, items taken as independent": ours.mcnemar.p <= 0.05,
        "reject|equivalence, true difference on the margin": same.verdict == "equivalent",
    }


def ladders(generator: np.random.Generator, n_videos: int, seed: int) -> Findings:
    """A flat ladder for the trend, and one that rises by 2 points a step for the best level."""
    flat, videos = answers(generator, [0.45] * len(LEVELS), n_videos)
    trend = statistics.monotone_trend(flat.T, LEVELS, videos, seed=seed, n_resamples=RESAMPLES)
    rising, others = answers(generator, [0.40, 0.42, 0.44, 0.46, 0.48], n_videos)
    best = statistics.best_level(rising.T, LEVELS, others, seed=seed, n_resamples=RESAMPLES)
    return {
        "reject|`monotone_trend`, two-sided": trend.p <= 0.05,
        "cover|slope of a flat ladder, `monotone_trend`": trend.ci_low <= 0 <= trend.ci_high,
        "cover|best of a ladder with steps of 2 points, `best_level`": best.ci_high == LEVELS[-1],
    }


def guessing(generator: np.random.Generator, n_videos: int, seed: int) -> Findings:
    """Guessing among 3 to 5 options: each item alone, and one luck for all questions of a video."""
    videos = np.repeat(np.arange(n_videos), sizes(generator, n_videos))
    options = generator.integers(3, 6, videos.size)
    alone = (generator.random(videos.size) < 1 / options).astype(float)
    together = (generator.random(n_videos)[videos] < 1 / options).astype(float)
    first, second = (
        statistics.against_chance(right, options, videos.tolist(), seed=seed, n_resamples=NONE)
        for right in (alone, together)
    )
    return {
        "reject|against chance, `p_independent`, items independent": first.p_independent <= 0.05,
        "reject|against chance, `p_clustered`, items independent": first.p_clustered <= 0.05,
        "reject|against chance, `p_independent`, a video's items alike": second.p_independent <= 0.05,
        "reject|against chance, `p_clustered`, a video's items alike": second.p_clustered <= 0.05,
    }


STUDIES: tuple[Callable[[np.random.Generator, int, int], Findings], ...] = (
    differences,
    sized,
    nulls,
    ladders,
    guessing,
)


def rates(simulations: int) -> dict[str, dict[int, float]]:
    """Share of the simulated studies in which each finding holds, by number of videos."""
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for n_videos in VIDEOS:
        hits: dict[str, int] = defaultdict(int)
        started = time.process_time()
        for number in range(simulations):
            generator = np.random.default_rng([n_videos, number])
            for study in STUDIES:
                for name, held in study(generator, n_videos, number).items():
                    hits[name] += held
        for name, count in hits.items():
            found[name][n_videos] = count / simulations
        print(f"{n_videos} videos: {time.process_time() - started:.0f} s of CPU", file=sys.stderr, flush=True)
    return found


def page(found: dict[str, dict[int, float]], simulations: int) -> Iterator[str]:
    """The tables, as Markdown."""
    yield "# Coverage and error rates of the statistics\n"
    yield f"`python tests/benchmarks/coverage.py --simulations {simulations} --out docs/coverage.md`\n"
    error = 196 * np.sqrt(0.95 * 0.05 / simulations)
    yield f"{simulations:,} simulated studies a column, {RESAMPLES:,} resamples in each."
    yield f"A rate of 95% (5%) is then known to +-{error:.1f} points."
    yield "Videos have 1 + NB questions, 3.7 on average, and a chance of their own to be answered."
    yield "What is simulated: see the script.\n"
    heads = {
        "cover": "Share of 95% intervals that hold the truth, in percent",
        "reject": "Share of true null hypotheses rejected at 5%, in percent",
    }
    for kind, head in heads.items():
        yield f"## {head}\n"
        yield "| | " + " | ".join(f"{n} videos" for n in VIDEOS) + " |"
        yield "|---|" + "---|" * len(VIDEOS)
        for name, row in found.items():
            if name.startswith(f"{kind}|"):
                cells = " | ".join(f"{100 * row[n]:.1f}" for n in VIDEOS)
                yield f"| {name.split('|')[1]} | {cells} |"
        yield ""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--simulations", type=int, default=2000)
    parser.add_argument("--out", type=Path, help="also write the tables here")
    chosen = parser.parse_args()
    found = rates(chosen.simulations)
    text = "\n".join(page(found, chosen.simulations))
    print(text)
    if chosen.out:
        chosen.out.write_text(text, encoding="utf-8")
    promised = ("cover|paired difference, `paired_difference`", "cover|accuracy, `probes")
    outside = [
        (name, n, rate)
        for name, row in found.items()
        if name.startswith(promised)
        for n, rate in row.items()
        if n >= 20 and not 0.93 <= rate <= 0.97
    ]
    for name, n, rate in outside:
        print(f"outside 93 to 97%: {name} with {n} videos, {100 * rate:.1f}%", file=sys.stderr)
    return 1 if outside else 0


if __name__ == "__main__":
    sys.exit(main())
