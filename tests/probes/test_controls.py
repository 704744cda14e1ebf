import numpy as np
import pytest
from scipy import stats
from scipy.spatial.distance import jensenshannon
from scipy.special import logit, softmax

import probes


def test_against_scipy():
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(12), size=(2, 3)), rng.dirichlet(np.ones(12), size=(2, 3))
    q[0, 0, :2] = q[0, 0, 2:4].mean()  # ties
    q /= q.sum(axis=-1, keepdims=True)
    result = probes.position_corrected(0.3 * p, q)
    np.testing.assert_allclose(result.kl, stats.entropy(p, q, axis=-1), atol=1e-12)
    np.testing.assert_allclose(result.js, jensenshannon(p, q, axis=-1) ** 2, atol=1e-12)
    np.testing.assert_allclose(result.log_ratio, np.log(p / q), atol=1e-12)
    for index in np.ndindex(2, 3):
        assert result.spearman[index] == pytest.approx(stats.spearmanr(p[index], q[index])[0], abs=1e-12)


def test_attention_that_is_position_alone_is_explained_by_it():
    position = softmax(np.linspace(0, 2, 16))
    result = probes.position_corrected(position, position)
    np.testing.assert_allclose(result.log_ratio, 0, atol=1e-12)
    assert float(result.explained) == pytest.approx(1.0)
    assert float(result.js) == pytest.approx(0.0, abs=1e-12)
    assert float(result.spearman) == pytest.approx(1.0)
    against_uniform = probes.position_corrected(position, np.ones(16))
    assert float(against_uniform.explained) == pytest.approx(0.0, abs=1e-12)
    assert np.isnan(against_uniform.spearman)
    misleading = probes.position_corrected(position, position[::-1].copy())
    assert float(misleading.explained) < 0


def test_content_on_top_of_position_comes_back_per_unit_and_as_log_lift():
    """Real logits = position + 2 on the evidence; the blank video has the position alone."""
    position, evidence = np.linspace(0, 3, 16), np.arange(16) == 14
    blank, real = softmax(position), softmax(position + 2.0 * evidence)
    result = probes.position_corrected(real, blank)
    contrast = result.log_ratio[14] - np.delete(result.log_ratio, 14)
    np.testing.assert_allclose(contrast, 2.0, atol=1e-12)
    corrected = probes.evidence_log_lift_corrected(real, blank, evidence)
    assert float(corrected) == pytest.approx(2.0, abs=1e-12)
    assert float(corrected) == pytest.approx(logit(real[14]) - logit(blank[14]), abs=1e-12)
    # Uncorrected, the late position of the evidence is taken for attention to it.
    assert float(probes.evidence_alignment(real, evidence).log_lift) > 2.5


def test_undefined_rows_stay_undefined():
    p = np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 0.0], [0.2, 0.3, 0.5], [1.0, 1.0, 1.0]])
    q = np.array([[0.0, 0.5, 0.5], [0.1, 0.1, 0.1], [0.0, 0.0, 0.0], [0.2, 0.3, 0.5]])
    result = probes.position_corrected(p, q)
    np.testing.assert_array_equal(np.isnan(result.kl), [True, True, True, False])
    np.testing.assert_array_equal(np.isnan(result.js), [False, True, True, False])
    np.testing.assert_array_equal(np.isnan(result.spearman), [False, True, True, True])
    np.testing.assert_array_equal(np.isnan(result.explained), [True, True, True, True])
    np.testing.assert_array_equal(np.isnan(result.log_ratio[0]), [True, False, True])
    assert set(result.measures()) <= set(probes.MEASURES)
    with pytest.raises(ValueError, match="its baseline"):
        probes.position_corrected(p, q[:2])


def test_value_weighting_is_the_length_of_the_weighted_value():
    rng = np.random.default_rng(1)
    attention = rng.random((2, 3, 10))
    values = rng.normal(size=(2, 3, 10, 8))
    unit = np.array([0, 0, 1, 1, 1, 3, 3, 3, 3, 0])
    result = probes.value_weighted_units(attention, np.linalg.norm(values, axis=-1), unit, 4)
    weighted = np.linalg.norm(attention[..., None] * values, axis=-1)
    expected = np.stack([weighted[..., unit == u].sum(axis=-1) for u in range(4)], axis=-1)
    np.testing.assert_allclose(result, expected, atol=1e-12)
    assert (result[..., 2] == 0).all()
    with pytest.raises(ValueError, match="negative lengths"):
        probes.value_weighted_units(attention, -attention, unit)
    with pytest.raises(ValueError, match="there are 3 units"):
        probes.value_weighted_units(attention, attention, unit, 3)
