"""Scores of heads with a planted one, against the unbounded log-lift, and their controls."""

import numpy as np
import pytest
from scipy.stats import spearmanr

import probes


def planted(seed=0, items=24, layers=3, heads=4, units=16, where=(1, 2), strength=3.0):
    """Attention of random heads that prefer positions, and one that finds the evidence."""
    rng = np.random.default_rng(seed)
    position = rng.normal(size=(layers, heads, units))
    masses, blanks, evidence = [], [], []
    for _ in range(items):
        shown = np.zeros(units, bool)
        start = rng.integers(units - 2)
        shown[start : start + 2] = True
        logits = position + 0.3 * rng.normal(size=position.shape)
        logits[where][shown] += strength
        masses.append(np.exp(logits) / np.exp(logits).sum(-1, keepdims=True) * 0.4)
        blanks.append(np.exp(position) / np.exp(position).sum(-1, keepdims=True) * 0.4)
        evidence.append(shown)
    scores = np.stack(
        [
            probes.bounded_log_lift(m, e) - probes.bounded_log_lift(b, e)
            for m, b, e in zip(masses, blanks, evidence, strict=True)
        ]
    )
    return masses, blanks, evidence, scores, [f"v{i // 2}" for i in range(items)]


def test_the_bounded_score_is_the_log_lift_where_that_has_a_bound():
    rng = np.random.default_rng(1)
    mass, evidence = rng.random((3, 4, 12)), np.arange(12) < 3
    plain = probes.evidence_alignment(mass, evidence).log_lift
    assert np.abs(probes.bounded_log_lift(mass, evidence, floor=1e-9) - plain).max() < 1e-6
    assert np.abs(probes.bounded_log_lift(mass, evidence) - plain).max() < 0.02


def test_heads_that_see_nothing_else_are_ranked():
    evidence = np.array([True, False, False, False])
    all_of_it, none_of_it = np.array([1.0, 0, 0, 0]), np.array([0, 1.0, 0, 0])
    high, low = probes.bounded_log_lift(np.stack([all_of_it, none_of_it]), evidence)
    part = 0.25
    expected = np.log((0.999 + 0.001 * part) / (0.001 * (1 - part))) - np.log(part / (1 - part))
    assert high == pytest.approx(expected)
    assert low < -6
    assert np.isnan(probes.bounded_log_lift(np.zeros(4), evidence))
    assert np.isnan(probes.bounded_log_lift(all_of_it, np.ones(4, bool)))


def test_the_excess_is_zero_without_preference_and_small_without_attention():
    evidence = np.arange(8) < 2
    assert probes.evidence_excess(np.full((3, 8), 0.1), evidence) == pytest.approx(np.zeros(3))
    mass = np.zeros(8)
    mass[0] = 0.4
    assert probes.evidence_excess(mass, evidence) == pytest.approx(0.4 - 0.25 * 0.4)
    assert probes.evidence_excess(0.01 * mass, evidence) == pytest.approx(0.003)
    assert np.isnan(probes.evidence_excess(mass, np.zeros(8, bool)))
    with pytest.raises(ValueError, match="8"):
        probes.evidence_excess(mass, np.ones(7, bool))


def test_the_excess_finds_the_planted_head_too():
    masses, blanks, evidence, _, _ = planted()
    null = probes.head_null(masses, evidence, blanks, score=probes.evidence_excess, draws=200)
    assert np.argwhere(null.p < 0.05).tolist() == [[1, 2]]


def test_the_planted_head_is_found_and_no_other():
    masses, blanks, evidence, scores, videos = planted()
    found = probes.head_scores(scores, videos)
    null = probes.head_null(masses, evidence, blanks)
    assert probes.top_heads(found.mean, 0.05) == [(1, 2)]
    above = found.mean > null.threshold
    assert above[1, 2]
    assert above.sum() == 1
    assert null.p[1, 2] == pytest.approx(1 / 501)
    assert (np.delete(null.p.ravel(), 1 * 4 + 2) > 0.05).all()
    assert found.ci_low[1, 2] > 2.0
    assert (found.n == 24).all()


def test_the_null_holds_its_level():
    """Without a planted head something is found in few of many data sets: 5% by construction."""
    false = 0
    for seed in range(30):
        masses, blanks, evidence, scores, _ = planted(seed, items=10, strength=0.0)
        null = probes.head_null(masses, evidence, blanks, draws=100)
        false += bool((scores.mean(axis=0) > null.threshold).any())
    assert false <= 6, f"{false} of 30"  # binomial(30, 0.05) exceeds 6 with probability 0.0003


def test_position_alone_is_no_score():
    """A head that looks at the end of every video scores high where evidence is late, unless controlled."""
    masses, blanks, _, _, _ = planted(strength=0.0)
    late = [np.arange(16) >= 14] * len(masses)
    raw = np.mean([probes.bounded_log_lift(m, e) for m, e in zip(masses, late, strict=True)], axis=0)
    controlled = np.mean(
        [
            probes.bounded_log_lift(m, e) - probes.bounded_log_lift(b, e)
            for m, b, e in zip(masses, blanks, late, strict=True)
        ],
        axis=0,
    )
    assert np.abs(raw).max() > 1
    assert np.abs(controlled).max() < 0.3


def test_split_half_is_high_for_stable_heads_and_not_for_noise():
    *_, scores, videos = planted()
    rng = np.random.default_rng(0)
    noise = rng.normal(size=scores.shape)
    assert probes.split_half(noise, videos).correlation < 0.3
    steady = noise * 0.01 + rng.normal(size=scores.shape[1:])
    found = probes.split_half(steady, videos, splits=20)
    assert found.correlation > 0.95
    assert found.splits == 20
    halves = [steady[:12].mean(0).ravel(), steady[12:].mean(0).ravel()]
    assert found.low <= spearmanr(*halves).statistic + 0.05
    assert np.isnan(probes.split_half(noise[:2], ["a", "a"]).correlation)


def test_halves_keep_videos_together():
    videos = [f"v{i % 7}" for i in range(30)]
    first = probes.video_halves(videos)
    assert len({v for v, side in zip(videos, first, strict=True) if side}) == 4
    assert not (
        {v for v, s in zip(videos, first, strict=True) if s}
        & {v for v, s in zip(videos, first, strict=True) if not s}
    )
    assert np.array_equal(first, probes.video_halves(videos))
    assert any(not np.array_equal(first, probes.video_halves(videos, seed=s)) for s in range(1, 9))


def test_top_heads_and_heads_like_them():
    score = np.array([[0.0, 3.0, np.nan], [2.0, 1.0, -1.0]])
    assert probes.top_heads(score, 0.5) == [(0, 1), (1, 0), (1, 1)]
    assert probes.top_heads(score, 0.01) == [(0, 1)]
    assert len(probes.top_heads(score, 1.0)) == 5
    like = probes.heads_like([(0, 1), (1, 0)], 8, seed=3)
    assert [layer for layer, _ in like] == [0, 1]
    assert not set(like) & {(0, 1), (1, 0)}
    assert {tuple(probes.heads_like([(0, 1)], 3, seed=s)) for s in range(20)} == {((0, 0),), ((0, 2),)}
    with pytest.raises(ValueError, match="1 other heads for 2"):
        probes.heads_like([(0, 0), (0, 1)], 3)
    with pytest.raises(ValueError, match="no head has a score"):
        probes.top_heads(np.full((2, 2), np.nan), 0.5)
    with pytest.raises(ValueError, match="share"):
        probes.top_heads(score, 0)


def test_sinks_are_taken_out():
    unit_mass = np.array([[[0.3, 0.2]], [[0.1, 0.4]]])
    sinks = np.array([[[0.3, 0.0]], [[0.1, 0.3]]])
    rest = 1 - unit_mass.sum(-1)
    left, other = probes.without_sinks(unit_mass, rest, sinks)
    assert np.allclose(left, [[[0, 0.2]], [[0, 0.1]]])
    assert np.allclose(left.sum(-1) + other, 1)
    assert np.allclose(probes.sink_share(unit_mass, sinks), [[0.6], [0.8]])
    assert probes.image_centric(unit_mass, rest, sinks * 0.5).all()
    assert not probes.image_centric(unit_mass, rest, sinks).any()
    assert not probes.image_centric(unit_mass * 0.1, 1 - unit_mass.sum(-1) * 0.1, sinks * 0.0).any()
    with pytest.raises(ValueError, match="more attention than their unit"):
        probes.without_sinks(unit_mass, rest, sinks + 0.1)


def test_the_twin_of_the_mean_over_heads_is_made_from_tokens():
    rng = np.random.default_rng(0)
    tokens = rng.random((3, 2, 10)) / 20
    score = rng.random((3, 10)) * 40
    unit = np.repeat(np.arange(5), 2)
    mask = probes.sink_mask(score, 20.0, first_layer=1)
    assert not mask[0].any()
    assert np.array_equal(mask[1:], score[1:] > 20)
    found = probes.units_without_sinks(tokens, mask, unit)
    for layer in range(3):
        for u in range(5):
            keep = (unit == u) & ~mask[layer]
            assert np.allclose(found[layer, :, u], tokens[layer][:, keep].sum(-1))


def test_a_head_that_says_the_right_option_is_found():
    rng = np.random.default_rng(0)
    counts = rng.integers(2, 6, 40)
    gold = [int(rng.integers(count)) for count in counts]
    parts = [rng.normal(size=(3, 4, count)).astype(np.float32) for count in counts]
    for part, right in zip(parts, gold, strict=True):
        part[2, 1, right] += 2.0
    scores, null = probes.attribution_null(parts, gold)
    by_hand = parts[5][2, 1, gold[5]] - np.delete(parts[5][2, 1], gold[5]).mean()
    assert scores[5, 2, 1] == pytest.approx(by_hand, abs=1e-5)
    above = np.argwhere(scores.mean(axis=0) > null.threshold).tolist()
    assert above == [[2, 1]]
    assert null.p[2, 1] == pytest.approx(1 / 501)
    with pytest.raises(ValueError, match="two options"):
        probes.attribution_null([parts[0][..., :1]], [0])
