import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics.pairwise import cosine_similarity

import probes


def tokens(n_units: int, rows: int, cols: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Unit, row and column of every token of a plain grid."""
    unit, row, col = np.indices((n_units, rows, cols)).reshape(3, -1)
    return unit, row, col


def test_unit_cosine_is_scikit_learns():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(9, 16)), rng.normal(1.0, 1.0, size=(5, 16))
    np.testing.assert_allclose(probes.unit_cosine(a), cosine_similarity(a), atol=1e-12)
    np.testing.assert_allclose(probes.unit_cosine(a, others=b), cosine_similarity(a, b), atol=1e-12)
    mean = a.mean(axis=0)
    np.testing.assert_allclose(probes.unit_cosine(a, centre=True), cosine_similarity(a - mean), atol=1e-12)
    given_mean = rng.normal(size=16)
    np.testing.assert_allclose(
        probes.unit_cosine(a, centre=given_mean), cosine_similarity(a - given_mean), atol=1e-12
    )
    origin = (a.mean(axis=0) + b.mean(axis=0)) / 2
    np.testing.assert_allclose(
        probes.unit_cosine(a, others=b, centre=True), cosine_similarity(a - origin, b - origin), atol=1e-12
    )


def test_pair_similarity_averages_each_pair_once():
    embeddings = np.random.default_rng(1).normal(size=(11, 6))
    result = probes.pair_similarity(embeddings)
    pairs = cosine_similarity(embeddings)[np.triu_indices(11, 1)]
    assert result.n_pairs == 55
    assert not result.sampled
    assert result.mean == pytest.approx(pairs.mean(), abs=1e-12)
    assert result.std == pytest.approx(pairs.std(), abs=1e-12)


def test_centring_takes_the_common_floor_away():
    rng = np.random.default_rng(2)
    embeddings = 5 * rng.normal(size=64) + rng.normal(size=(40, 64))
    assert probes.pair_similarity(embeddings).mean > 0.9
    # Independent directions around their own mean: -1/(U-1).
    assert probes.pair_similarity(embeddings, centre=True).mean == pytest.approx(-1 / 39, abs=2e-3)


def test_two_videos_of_one_kind_are_less_alike_than_one_video():
    rng = np.random.default_rng(3)
    kind = 3 * rng.normal(size=64)
    first, second = (kind + 2 * rng.normal(size=64) + rng.normal(size=(20, 64)) for _ in range(2))
    within = probes.pair_similarity(first).mean
    between = probes.pair_similarity(first, others=second)
    assert between.n_pairs == 400
    assert within > between.mean > 0
    # Around a common origin the two videos stand on opposite sides.
    assert probes.pair_similarity(first, others=second, centre=True).mean < -0.3


def test_many_units_are_sampled_and_the_sample_is_repeatable():
    embeddings = np.random.default_rng(4).normal(1.0, 1.0, size=(60, 8))
    everything = probes.pair_similarity(embeddings, max_units=None)
    sampled = probes.pair_similarity(embeddings, max_units=40, seed=7)
    assert sampled.sampled
    assert sampled.n_pairs == 40 * 39 // 2
    assert sampled == probes.pair_similarity(embeddings, max_units=40, seed=7)
    assert sampled != probes.pair_similarity(embeddings, max_units=40, seed=8)
    assert sampled.mean == pytest.approx(everything.mean, abs=4 * everything.std / np.sqrt(780))
    across = probes.pair_similarity(embeddings, others=embeddings[:5], max_units=10)
    assert across.sampled
    assert across.n_pairs == 100


def test_a_frozen_video_has_no_direction_once_centred():
    rng = np.random.default_rng(5)
    # Equal but for the last bits of float32, as a kernel leaves them.
    frozen = np.tile(rng.normal(size=32), (6, 1)) * (1 + 1e-7 * rng.normal(size=(6, 32)))
    assert probes.pair_similarity(frozen).mean == pytest.approx(1.0)
    centred = probes.pair_similarity(frozen, centre=True)
    assert np.isnan(centred.mean)
    assert (centred.n_pairs, centred.n_undefined) == (0, 15)


def test_a_zero_or_missing_unit_is_dropped_and_counted():
    embeddings = np.random.default_rng(6).normal(size=(5, 8))
    embeddings[1], embeddings[3] = 0.0, np.nan
    result = probes.pair_similarity(embeddings)
    assert (result.n_pairs, result.n_undefined) == (3, 7)
    assert result.mean == pytest.approx(probes.pair_similarity(embeddings[[0, 2, 4]]).mean, abs=1e-12)
    assert probes.pair_similarity(embeddings[:1]).n_pairs == 0


def test_unit_embeddings_are_means_in_any_order_of_tokens():
    rng = np.random.default_rng(7)
    features, unit = rng.normal(size=(12, 4)), np.array([0, 0, 0, 1, 1, 3, 3, 3, 3, 3, 1, 0])
    means = probes.unit_embeddings(features, unit, 4)
    for index in (0, 1, 3):
        np.testing.assert_allclose(means[index], features[unit == index].mean(axis=0), rtol=1e-12)
    assert np.isnan(means[2]).all()


@pytest.mark.parametrize(
    ("n_units", "fraction", "expected"), [(64, 0.25, 16), (7, 0.25, 2), (1, 0.25, 1), (100, 0.07, 7)]
)
def test_keyframes_are_the_most_attended_quarter(n_units, fraction, expected):
    share = np.random.default_rng(n_units).permutation(n_units).astype(float)
    is_key = probes.keyframes(share, fraction)
    assert is_key.sum() == expected
    assert share[is_key].min() > share[~is_key].max(initial=-1.0)


def test_keyframes_of_equal_attention_are_the_earlier():
    np.testing.assert_array_equal(probes.keyframes(np.ones(8)), [True, True] + [False] * 6)
    share = np.random.default_rng(0).integers(1, 4, size=500).astype(float)
    first = sorted(range(500), key=lambda unit: (-share[unit], unit))[:50]
    np.testing.assert_array_equal(np.flatnonzero(probes.keyframes(share, 0.1)), sorted(first))
    assert not probes.keyframes(np.array([0.5, np.nan, 0.5])).any()
    with pytest.raises(ValueError, match="key_fraction"):
        probes.keyframes(np.ones(8), 0.0)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.booleans(), max_size=20))
def test_nearest_preceding_by_the_definition(flags):
    result = probes.nearest_preceding(np.array(flags, dtype=bool))
    assert result.dtype == np.int32
    expected = [
        -1 if flag else max((k for k in range(index) if flags[k]), default=-1)
        for index, flag in enumerate(flags)
    ]
    assert result.tolist() == expected


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_patches_are_compared_place_by_place(dtype):
    unit, row, col = tokens(6, 3, 4)
    features = np.random.default_rng(8).normal(size=(72, 10)).astype(dtype)
    is_key = np.array([False, True, False, False, True, False])
    result = probes.patch_to_keyframe(features, unit, row, col, is_key)
    cube = features.reshape(6, 12, 10).astype(np.float64)
    for index, key in ((2, 1), (3, 1), (5, 4)):
        expected = np.diag(cosine_similarity(cube[index], cube[key]))
        np.testing.assert_allclose(
            result.similarity.reshape(6, 12)[index], expected, atol=1e-12 if dtype == np.float64 else 1e-6
        )
    assert np.isnan(result.similarity.reshape(6, 12)[[0, 1, 4]]).all()
    assert (result.n_no_keyframe, result.n_grid_mismatch, result.n_no_direction) == (12, 0, 0)

    # The tokens may come in any order: places say what belongs together.
    order = np.random.default_rng(9).permutation(72)
    shuffled = probes.patch_to_keyframe(features[order], unit[order], row[order], col[order], is_key)
    np.testing.assert_allclose(shuffled.similarity, result.similarity[order], atol=1e-6)


def test_unequal_grids_and_zero_patches_are_undefined_and_counted():
    # Unit 1 is 2x2 like its keyframe; unit 2 is 1x4: as many tokens in other places.
    unit = np.repeat([0, 1, 2], 4)
    row = np.array([0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0])
    col = np.array([0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 2, 3])
    features = np.ones((12, 3))
    features[5] = 0.0
    result = probes.patch_to_keyframe(features, unit, row, col, np.array([True, False, False]))
    np.testing.assert_allclose(result.similarity[4:8], [1, np.nan, 1, 1])
    assert np.isnan(result.similarity[8:]).all()
    assert (result.n_no_keyframe, result.n_grid_mismatch, result.n_no_direction) == (0, 4, 1)


def test_two_tokens_in_one_place_are_refused():
    with pytest.raises(ValueError, match=r"two tokens lie at \(0, 1\) of unit 1"):
        probes.patch_to_keyframe(
            np.ones((3, 2)), np.array([0, 1, 1]), np.zeros(3, int), np.ones(3, int), np.array([True, False])
        )
    with pytest.raises(ValueError, match="there are 2 units"):
        probes.patch_to_keyframe(
            np.ones((1, 2)), np.array([2]), np.zeros(1, int), np.zeros(1, int), np.array([True, False])
        )


def test_a_video_of_an_8b_models_size_keeps_its_null():
    unit, row, col = tokens(64, 25, 40)
    rng = np.random.default_rng(10)
    features = rng.standard_normal((64_000, 2048), dtype=np.float32)
    attention = rng.random(64_000)
    result = probes.patch_redundancy(features, attention, unit, row, col)
    assert result.nulls["time"].n_shifts > 40
