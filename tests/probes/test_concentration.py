import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

import probes

masses = st.integers(2, 24).flatmap(
    lambda n: arrays(np.float64, n, elements=st.integers(0, 50).map(float)).filter(lambda m: m.sum() > 0)
)
relaxed = settings(max_examples=60, deadline=None)


def test_a_written_out_distribution():
    result = probes.concentration(np.array([1.0, 6.0, 2.0, 1.0]) / 20)
    np.testing.assert_allclose(result.shares, [0.1, 0.6, 0.2, 0.1], rtol=1e-15)
    np.testing.assert_array_equal(result.ranking, [1, 2, 0, 3])
    np.testing.assert_allclose(result.cumulative, [0.6, 0.8, 0.9, 1.0], rtol=1e-15)
    fractions = {a: float(v) for a, v in result.unit_fraction.items()}
    assert fractions == {0.5: 0.25, 0.8: 0.5, 0.9: 0.75, 0.95: 1.0}
    assert float(result.visual_mass) == pytest.approx(0.5, abs=1e-15)
    # Sum over all 16 pairs |p_i - p_j| = 2 * (0.5 + 0.4 + 0.5 + 0.1 + 0 + 0.1) = 3.2; over 2 U^2 mean = 8.
    assert float(result.gini) == pytest.approx(0.4, abs=1e-15)


@pytest.mark.parametrize("n_units", [1, 2, 7, 8, 10, 20, 60, 64, 100, 384])
def test_uniform_attention_gives_the_reference(n_units):
    result = probes.concentration(np.full(n_units, 0.3 / n_units, dtype=np.float32))
    reference = probes.uniform_reference(n_units)
    assert {a: float(v) for a, v in result.unit_fraction.items()} == reference
    assert float(result.effective_units) == pytest.approx(n_units, rel=1e-12)
    if n_units > 1:
        assert float(result.entropy) == pytest.approx(1.0, abs=1e-12)
        assert float(result.gini) == pytest.approx(0.0, abs=1e-12)


def test_uniform_reference_is_a_ceiling_in_exact_arithmetic():
    assert probes.uniform_reference(8) == {0.5: 0.5, 0.8: 0.875, 0.9: 1.0, 0.95: 1.0}
    # 0.55 * 100 and 0.07 * 100 are above the whole number in float64.
    assert probes.uniform_reference(100, (0.55, 0.07)) == {0.55: 0.55, 0.07: 0.07}
    for n_units in range(1, 400):
        for percent in (50, 80, 90, 95):
            expected = -(-percent * n_units // 100) / n_units
            assert probes.uniform_reference(n_units)[percent / 100] == expected, (n_units, percent)


def test_one_attended_unit():
    result = probes.concentration(np.array([0.0, 0.0, 0.4, 0.0]))
    assert {float(v) for v in result.unit_fraction.values()} == {0.25}
    assert float(result.entropy) == 0.0
    assert float(result.effective_units) == 1.0
    assert float(result.gini) == pytest.approx(0.75)


def test_ties_rank_the_earlier_unit_first():
    result = probes.concentration(np.array([1.0, 2.0, 2.0, 1.0]))
    np.testing.assert_array_equal(result.ranking, [1, 2, 0, 3])
    # Sorts that are not stable often look so on short arrays.
    mass = np.random.default_rng(0).integers(1, 4, size=500).astype(float)
    expected = sorted(range(500), key=lambda unit: (-mass[unit], unit))
    np.testing.assert_array_equal(probes.concentration(mass).ranking, expected)


def test_one_unit_has_no_entropy_and_no_inequality():
    result = probes.concentration(np.array([0.4]))
    assert np.isnan(result.entropy)
    assert np.isnan(result.gini)
    assert float(result.effective_units) == 1.0
    assert float(result.unit_fraction[0.9]) == 1.0


def test_no_attention_on_the_video_is_undefined_and_counted():
    mass = np.array([[0.2, 0.1, 0.1], [0.0, 0.0, 0.0], [np.nan, 0.1, 0.1]])
    result = probes.concentration(mass, rest_mass=np.array([0.6, 1.0, np.nan]))
    np.testing.assert_array_equal(result.defined, [True, False, False])
    assert result.n_undefined == 2
    for name, values in result.measures().items():
        assert np.isfinite(values[0]), name
        assert np.isnan(values[2]), name
        if name != "visual_mass":
            assert np.isnan(values[1]), name
    assert np.isnan(result.shares[1:]).all()
    assert np.isnan(result.cumulative[1:]).all()
    # That nothing goes to the video is a measurement, not a gap.
    assert result.visual_mass[1] == 0.0


def test_visual_mass_of_rows_that_do_not_sum_to_one():
    unit_mass = np.array([[1.0, 2.0], [0.0, 0.0]])
    result = probes.concentration(unit_mass, rest_mass=np.array([9.0, 0.0]))
    np.testing.assert_allclose(result.visual_mass, [0.25, np.nan])


def test_mean_pooling_undoes_the_size_of_units():
    tokens = np.array([10, 30, 60])
    uniform_over_tokens = tokens / 200
    assert float(probes.concentration(uniform_over_tokens).shares[2]) == pytest.approx(0.6)
    pooled = probes.concentration(uniform_over_tokens, tokens_per_unit=tokens)
    np.testing.assert_allclose(pooled.shares, 1 / 3, rtol=1e-15)
    assert float(pooled.visual_mass) == pytest.approx(0.5)


def test_axes_are_kept_and_rows_do_not_mix():
    mass = np.random.default_rng(0).dirichlet(np.ones(9), size=(2, 3, 4)).astype(np.float32)
    result = probes.concentration(mass)
    single = probes.concentration(mass[1, 2, 3])
    assert result.entropy.shape == (2, 3, 4)
    for name, values in result.measures().items():
        assert values[1, 2, 3] == pytest.approx(float(single.measures()[name]), abs=1e-15), name
    np.testing.assert_array_equal(result.ranking[1, 2, 3], single.ranking)


@pytest.mark.parametrize(
    ("mass", "message"),
    [
        (np.array([0.1, -0.1]), "negative"),
        (np.array([0.1, np.inf]), "infinite"),
        (np.zeros((2, 0)), "at least one unit"),
    ],
)
def test_what_cannot_be_attention_is_refused(mass, message):
    with pytest.raises(ValueError, match=message):
        probes.concentration(mass)


def test_bad_arguments_are_refused():
    mass = np.ones((2, 3))
    with pytest.raises(ValueError, match=r"\(0, 1\]"):
        probes.concentration(mass, fractions=(0.0,))
    with pytest.raises(ValueError, match="tokens_per_unit"):
        probes.concentration(mass, tokens_per_unit=np.array([1, 0, 2]))
    with pytest.raises(ValueError, match="over 0 units"):
        probes.uniform_reference(0)
    with pytest.raises(ValueError, match="rest_mass holds negative"):
        probes.concentration(mass, rest_mass=np.array([-1.0, 0.0]))


@relaxed
@given(masses)
def test_against_scipy_and_the_pairwise_gini(mass):
    result = probes.concentration(mass)
    n_units = mass.size
    assert float(result.entropy) == pytest.approx(stats.entropy(mass) / np.log(n_units), abs=1e-12)
    pairwise = np.abs(mass[:, None] - mass[None, :]).sum() / (2 * n_units**2 * mass.mean())
    assert float(result.gini) == pytest.approx(pairwise, abs=1e-12)
    assert float(result.effective_units) == pytest.approx(np.exp(stats.entropy(mass)), rel=1e-12)


@relaxed
@given(masses, st.randoms(use_true_random=False), st.sampled_from([0.5, 4.0, 0.3, 1e-6]))
def test_order_and_scale_do_not_matter(mass, random, scale):
    order = list(range(mass.size))
    random.shuffle(order)
    first, second = probes.concentration(mass), probes.concentration(mass[order] * scale)
    for name, value in first.measures().items():
        factor = scale if name == "visual_mass" else 1.0
        assert float(second.measures()[name]) == pytest.approx(float(value) * factor, rel=1e-12), name


@relaxed
@given(masses)
def test_the_curve_is_monotone_concave_and_ends_at_one(mass):
    result = probes.concentration(mass)
    steps = np.diff(result.cumulative, prepend=0.0)
    assert (steps >= 0).all()
    assert (np.diff(steps) <= 1e-12).all()
    assert result.cumulative[-1] == pytest.approx(1.0, abs=1e-12)
    fractions = [float(result.unit_fraction[a]) for a in (0.5, 0.8, 0.9, 0.95)]
    assert fractions == sorted(fractions)
    # The definition, by exact integers: the fewest units whose sum reaches the target.
    ranked = np.sort(mass.astype(int))[::-1].cumsum()
    for percent in (50, 80, 90, 95):
        fewest = int(np.argmax(100 * ranked >= percent * ranked[-1])) + 1
        assert float(result.unit_fraction[percent / 100]) == fewest / mass.size
