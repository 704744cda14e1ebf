import numpy as np
import pytest
from scipy import stats
from scipy.spatial.distance import jensenshannon

import probes


def peaked_heads(n_heads: int, n_units: int) -> np.ndarray:
    """Each head puts most of its attention on a unit of its own: [layer=1, head, unit]."""
    mass = np.full((1, n_heads, n_units), 0.1 / n_units)
    mass[0, np.arange(n_heads), np.arange(n_heads) * (n_units // n_heads)] += 0.9
    return mass


def test_heads_that_each_peak_on_another_unit_look_diffuse_when_pooled():
    summary = probes.pooled_and_per_head(peaked_heads(16, 32))
    assert summary.per_head["unit_fraction_90"] == pytest.approx(1 / 32)
    assert summary.pooled["unit_fraction_90"] == pytest.approx(16 / 32)
    assert summary.difference["unit_fraction_90"] == pytest.approx(15 / 32)
    assert summary.difference["entropy"] > 0.5
    assert summary.divergence_normalised == pytest.approx(summary.divergence / np.log(32))


def test_equal_heads_do_not_diverge():
    head = np.random.default_rng(0).dirichlet(np.ones(12)) * 0.4
    summary = probes.pooled_and_per_head(np.broadcast_to(head, (2, 5, 12)).copy())
    assert summary.divergence == pytest.approx(0.0, abs=1e-12)
    for name, value in summary.difference.items():
        assert value == pytest.approx(0.0, abs=1e-12), name


@pytest.mark.parametrize("weighting", ["mass", "equal"])
def test_divergence_is_the_jensen_shannon_divergence_of_two_heads(weighting):
    rng = np.random.default_rng(1)
    p, q = rng.dirichlet(np.ones(7), size=2)
    summary = probes.pooled_and_per_head(0.2 * np.stack([p, q])[None], weighting=weighting)
    assert summary.divergence == pytest.approx(jensenshannon(p, q) ** 2, abs=1e-12)


@pytest.mark.parametrize("weighting", ["mass", "equal"])
def test_divergence_is_entropy_of_the_mixture_minus_mean_entropy(weighting):
    rng = np.random.default_rng(2)
    shares = rng.dirichlet(np.ones(9), size=(3, 4))
    visual = rng.uniform(0.1, 0.9, size=(3, 4))
    mass = shares * visual[..., None]
    weights = visual / visual.sum() if weighting == "mass" else np.full((3, 4), 1 / 12)
    mixture = np.einsum("lh,lhu->u", weights, shares)
    entropies = stats.entropy(shares, axis=-1)
    expected = stats.entropy(mixture) - (weights * entropies).sum()

    summary = probes.pooled_and_per_head(mass, weighting=weighting)
    assert summary.divergence == pytest.approx(expected, abs=1e-12)
    np.testing.assert_allclose(summary.mixture.shares, mixture, atol=1e-12)
    # Which way heads are mixed does not change how much of the attention is on the video.
    assert summary.pooled["visual_mass"] == pytest.approx(visual.mean(), abs=1e-12)
    if weighting == "equal":
        assert summary.divergence_normalised == pytest.approx(summary.difference["entropy"], abs=1e-12)


def test_undefined_heads_are_left_out_and_counted():
    mass = peaked_heads(4, 8)
    with_idle = np.concatenate([mass, np.zeros((1, 1, 8)), np.full((1, 1, 8), np.nan)], axis=1)
    summary, reference = probes.pooled_and_per_head(with_idle), probes.pooled_and_per_head(mass)
    assert (summary.n_heads, summary.n_undefined) == (6, 2)
    assert summary.n_defined["entropy"] == 4
    assert summary.n_defined["visual_mass"] == 5  # the idle head's zero counts, the absent head does not
    assert summary.per_head["entropy"] == pytest.approx(reference.per_head["entropy"])
    assert summary.pooled["entropy"] == pytest.approx(reference.pooled["entropy"])
    assert summary.divergence == pytest.approx(reference.divergence)
    assert summary.per_head["visual_mass"] == pytest.approx(0.8)


def test_nothing_defined_gives_nan_throughout():
    summary = probes.pooled_and_per_head(np.zeros((1, 2, 4)))
    assert np.isnan(summary.divergence)
    assert np.isnan(summary.pooled["entropy"])
    assert np.isnan(summary.per_head["entropy"])


def test_layers_and_heads_are_chosen():
    mass = np.random.default_rng(3).dirichlet(np.ones(6), size=(4, 5))
    chosen = probes.pooled_and_per_head(mass, layers=[1, 3], heads=[0, 4])
    direct = probes.pooled_and_per_head(mass[[1, 3]][:, [0, 4]])
    assert chosen.measures() == direct.measures()
    with pytest.raises(IndexError):
        probes.pooled_and_per_head(mass, layers=[4])


@pytest.mark.parametrize("weighting", ["mass", "equal"])
def test_mean_pooling_over_units_of_unequal_size(weighting):
    tokens = np.array([1, 2, 4, 8])
    rng = np.random.default_rng(4)
    per_token = rng.dirichlet(np.ones(4), size=(2, 3))
    summary = probes.pooled_and_per_head(per_token * tokens / 10, tokens_per_unit=tokens, weighting=weighting)
    # Per-token attention all adds up to the same here, so both weightings are the plain mean of shares.
    np.testing.assert_allclose(summary.mixture.shares, per_token.mean(axis=(0, 1)), atol=1e-12)


def test_evidence_by_both_roads():
    mass = peaked_heads(4, 8)  # peaks on 0, 2, 4, 6
    evidence = np.arange(8) == 2
    rest = 1 - mass.sum(axis=-1)
    summary = probes.pooled_and_per_head(mass, evidence=evidence, rest_mass=np.clip(rest, 0, None))
    per_head = probes.evidence_alignment(mass, evidence)
    pooled = probes.evidence_alignment(mass.mean(axis=(0, 1)), evidence)
    assert summary.per_head["evidence_log_lift"] == pytest.approx(float(per_head.log_lift.mean()))
    assert summary.pooled["evidence_log_lift"] == pytest.approx(float(pooled.log_lift))
    assert summary.measures()["evidence_covered"] == 1.0
    assert summary.pooled["evidence_mass"] == pytest.approx(summary.per_head["evidence_mass"])


def test_every_name_it_gives_is_a_measure():
    mass = np.random.default_rng(5).dirichlet(np.ones(6), size=(2, 2))
    names = probes.pooled_and_per_head(mass, evidence=np.arange(6) == 1).measures()
    for name in names:
        assert name.removesuffix("_pooled") in probes.MEASURES, name
        assert name == name.removesuffix("_pooled") or "_pooled" in probes.SUFFIXES


def test_bad_axes_and_weightings_are_refused():
    with pytest.raises(ValueError, match="not 'median'"):
        probes.pooled_and_per_head(np.ones((1, 1, 2)), weighting="median")
