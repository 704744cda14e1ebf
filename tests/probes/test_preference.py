import numpy as np
import pytest

import probes

ROWS, COLS = 6, 7


def planted(
    similarity: np.ndarray, attention: np.ndarray, is_key: np.ndarray, **options
) -> probes.PatchRedundancy:
    """Preference over a plain grid with the given cosines [unit, place] (those of keyframes are ignored)."""
    unit, row, col = np.indices((len(is_key), ROWS, COLS)).reshape(3, -1)
    # Two dimensions are enough to plant a cosine: the keyframe along x, the patch at the angle to it.
    angle = np.where(is_key[:, None], 0.0, np.arccos(similarity))
    features = np.stack([np.cos(angle), np.sin(angle)], axis=-1).reshape(-1, 2)
    return probes.patch_redundancy(features, attention.ravel(), unit, row, col, is_key=is_key, **options)


def noise(seed: int, n_units: int = 48) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    shape = (n_units, ROWS * COLS)
    return rng.uniform(0.2, 0.95, shape), rng.gamma(1.0, size=shape), np.arange(n_units) % 4 == 0


def test_the_planted_cosines_and_their_means_come_back():
    c, a, is_key = noise(0)
    result = planted(c, a, is_key)
    c, a = c[~is_key].ravel(), a[~is_key].ravel()
    assert result.n_patches == c.size
    assert result.patch_similarity == pytest.approx(c.mean(), abs=1e-12)
    assert result.attended_similarity == pytest.approx(np.average(c, weights=a), abs=1e-12)
    assert result.redundancy_preference == pytest.approx(np.average(c, weights=a) - c.mean(), abs=1e-12)
    assert result.attention_above[0.8] == pytest.approx(a[c > 0.8].sum() / a.sum(), abs=1e-12)
    assert result.patches_above[0.8] == pytest.approx((c > 0.8).mean(), abs=1e-12)
    assert result.histogram.sum() == c.size


def test_attention_on_redundant_patches_is_a_preference_beyond_both_nulls():
    c, _, is_key = noise(1)
    result = planted(c, np.exp(3 * c), is_key)
    assert result.redundancy_preference > 0.1
    for name in ("time", "space", "stratified_time", "stratified_space"):
        null = result.nulls[name]
        assert null.observed > null.high, name
        assert null.z > 5, name
        assert null.p_value == pytest.approx(2 / (null.n_shifts + 1)), name
    assert result.nulls["time"].n_shifts == 35
    assert result.nulls["space"].n_shifts == ROWS * COLS - 1
    avoiding = planted(c, np.exp(-3 * c), is_key)
    assert avoiding.redundancy_preference < -0.1
    assert avoiding.nulls["time"].z < -5


@pytest.mark.parametrize("name", ["time", "space", "stratified_time", "stratified_space"])
def test_attention_unrelated_to_similarity_is_inside_the_null_as_often_as_it_should(name):
    p_values = np.array([planted(*noise(seed)).nulls[name].p_value for seed in range(100)])
    # 100 draws at 5%: 12 or more by chance once in 300 times; and a test that never rejects is no test.
    assert (p_values <= 0.06).sum() < 12
    assert (p_values <= 0.5).sum() > 30


def test_the_nulls_are_the_shifts_written_out():
    c, a, is_key = noise(2, n_units=12)
    result = planted(c, a, is_key)
    c, a = (x[~is_key].reshape(-1, ROWS, COLS) for x in (c, a))
    in_time = [np.average(c, weights=np.roll(a, k, axis=0)) - c.mean() for k in range(1, len(c))]
    in_space = [
        np.average(c, weights=np.roll(a, (dy, dx), axis=(1, 2))) - c.mean()
        for dy in range(ROWS)
        for dx in range(COLS)
        if (dy, dx) != (0, 0)
    ]
    for name, values in (("time", in_time), ("space", in_space)):
        null, values = result.nulls[name], np.array(values)
        assert null.n_shifts == len(values)
        assert null.mean == pytest.approx(values.mean(), abs=1e-12)
        np.testing.assert_allclose([null.low, null.high], np.quantile(values, [0.025, 0.975]), atol=1e-12)
        assert null.z == pytest.approx((null.observed - values.mean()) / values.std(), rel=1e-9)
        tail = min((values >= null.observed).sum(), (values <= null.observed).sum())
        assert null.p_value == pytest.approx(min(1, 2 * (tail + 1) / (len(values) + 1)))


@pytest.mark.parametrize("strata", [[4.0], 20, 100])
def test_distance_in_time_confounds_the_raw_preference_and_not_the_stratified(strata):
    """Both fall with time from the keyframe and are independent at each distance."""
    rng = np.random.default_rng(3)
    n_units = 128
    # Keyframes at uneven intervals, as attention gives them: at even ones every eighth shift falls into step.
    starts = np.cumsum(rng.integers(2, 13, size=100))
    is_key = np.isin(np.arange(n_units), starts) | (np.arange(n_units) == 0)
    last = np.maximum.accumulate(np.where(is_key, np.arange(n_units), 0))
    distance = (np.arange(n_units) - last)[:, None]
    shape = (n_units, ROWS * COLS)
    if strata == [4.0]:  # two steps in time, so that two strata hold all there is to know of the distance
        distance = np.where(distance >= 4, 8, 1)
    c = 0.9 - 0.05 * distance + rng.uniform(-0.1, 0.1, shape)
    a = np.exp(-0.3 * distance) * rng.gamma(2.0, size=shape)
    result = planted(c, a, is_key, strata=strata)
    assert result.redundancy_preference > 0.03
    assert abs(result.stratified_preference) < 0.005
    assert abs(result.within_unit_preference) < 0.005
    # The confound is in time: it lies outside the null in time, inside the one that moves places.
    assert result.redundancy_preference > result.nulls["time"].high
    assert result.nulls["time"].p_value < 0.05
    assert result.nulls["space"].mean == pytest.approx(result.redundancy_preference, abs=0.005)
    assert result.nulls["stratified_time"].p_value > 0.05


def test_a_preference_for_static_places_lies_inside_the_null_in_time_and_outside_the_one_in_space():
    rng = np.random.default_rng(4)
    static = rng.uniform(0.2, 0.9, ROWS * COLS)
    shape = (48, ROWS * COLS)
    c = static + rng.uniform(-0.05, 0.05, shape)
    a = np.exp(3 * static) * rng.gamma(20.0, size=shape)
    result = planted(c, a, np.arange(48) % 4 == 0)
    assert result.redundancy_preference > 0.05
    assert result.nulls["time"].p_value > 0.05
    assert result.nulls["time"].mean == pytest.approx(result.redundancy_preference, abs=0.01)
    assert result.nulls["space"].z > 3


def test_strata_add_up_to_the_stratified_preference():
    c, a, is_key = noise(5)
    result = planted(c, a, is_key, unit_seconds=np.arange(48) * 2.5)
    assert [(s.nearest, s.farthest) for s in result.strata] == [(2.5, 2.5), (5.0, 5.0), (7.5, 7.5)]
    assert sum(s.n_patches for s in result.strata) == result.n_patches
    assert sum(s.attention_share for s in result.strata) == pytest.approx(1.0)
    total = sum(s.attention_share * s.preference for s in result.strata)
    assert result.stratified_preference == pytest.approx(total, abs=1e-12)
    # Raw minus stratified is what the distances alone explain.
    between = sum(s.attention_share * s.patch_similarity for s in result.strata) - result.patch_similarity
    assert result.redundancy_preference - result.stratified_preference == pytest.approx(between, abs=1e-12)


def test_strata_of_distances():
    distance = np.array([np.nan, 1.0, 2.0, 1.0 + 1e-9, 3.0])
    np.testing.assert_array_equal(probes.distance_strata(distance), [-1, 0, 1, 0, 2])
    np.testing.assert_array_equal(probes.distance_strata(distance, [2.0]), [-1, 0, 1, 0, 1])
    many = probes.distance_strata(np.arange(100.0), 4)
    np.testing.assert_array_equal(np.bincount(many), [25, 25, 25, 25])
    with pytest.raises(ValueError, match="ascend"):
        probes.distance_strata(distance, [2.0, 1.0])
    with pytest.raises(ValueError, match="at least one stratum"):
        probes.distance_strata(distance, 0)


def test_curve_and_fraction_by_the_definition():
    c, a, is_key = noise(6, n_units=8)
    result = planted(c, a, is_key)
    c, a = c[~is_key].ravel(), a[~is_key].ravel()
    order = np.argsort(-a)
    for fraction, value in zip(result.curve_fraction, result.curve_similarity, strict=True):
        top = order[: int(np.ceil(round(fraction * c.size, 9)))]
        assert value == pytest.approx(c[top].mean(), abs=1e-12), fraction
    assert result.curve_similarity[-1] == pytest.approx(result.patch_similarity, abs=1e-12)
    fewest = int(np.argmax(np.cumsum(a[order]) >= 0.8 * a.sum())) + 1
    assert result.patch_fraction == pytest.approx(fewest / c.size)


def test_units_before_the_first_keyframe_have_attention_and_no_similarity():
    c, a, _ = noise(7, n_units=10)
    is_key = np.arange(10) == 4
    result = planted(c, a, is_key)
    assert result.similarity.n_no_keyframe == 4 * ROWS * COLS
    assert result.n_patches == 5 * ROWS * COLS
    assert result.patch_similarity == pytest.approx(c[5:].mean(), abs=1e-12)
    outside = np.sort(a[~is_key].ravel())[::-1]
    fewest = int(np.argmax(outside.cumsum() >= 0.8 * outside.sum())) + 1
    assert result.patch_fraction == pytest.approx(fewest / outside.size)


def test_keyframes_are_taken_from_the_attention_where_none_are_given():
    _, a, _ = noise(8, n_units=8)
    a[[1, 5]] *= 50
    unit, row, col = np.indices((8, ROWS, COLS)).reshape(3, -1)
    features = np.random.default_rng(8).normal(size=(a.size, 4))
    result = probes.patch_redundancy(features, a.ravel(), unit, row, col)
    np.testing.assert_array_equal(np.flatnonzero(result.is_key), [1, 5])
    np.testing.assert_array_equal(result.distance, [np.nan, np.nan, 1, 2, 3, np.nan, 1, 2])


@pytest.mark.parametrize("is_key", [np.zeros(6, bool), np.ones(6, bool), np.arange(6) == 5])
def test_no_patch_to_compare_is_undefined_not_zero(is_key):
    c, a, _ = noise(9, n_units=6)
    result = planted(c, a, is_key)
    assert result.n_patches == 0
    assert result.strata == ()
    measures = result.measures()
    if not is_key.all():
        assert np.isfinite(measures.pop("patch_fraction_80"))
    for name, value in measures.items():
        assert np.isnan(value), name
    assert np.isnan(result.curve_similarity).all()
    assert result.nulls["time"].n_shifts == 0


def test_no_attention_leaves_the_similarity_and_no_preference():
    c, a, is_key = noise(10)
    a[~is_key] = 0.0
    result = planted(c, a, is_key)
    assert np.isfinite(result.patch_similarity)
    assert np.isnan(result.redundancy_preference)
    assert np.isnan(result.stratified_preference)
    assert np.isnan(result.nulls["time"].p_value)


def test_constant_similarity_has_no_preference_and_no_z():
    _, a, is_key = noise(11)
    result = planted(np.full_like(a, 0.5), a, is_key)
    assert result.redundancy_preference == pytest.approx(0.0, abs=1e-12)
    assert np.isnan(result.nulls["time"].z)
    assert result.nulls["time"].p_value == 1.0


def test_undefined_patches_take_no_part_in_the_null():
    c, a, is_key = noise(12, n_units=12)
    unit, row, col = np.indices((12, ROWS, COLS)).reshape(3, -1)
    angle = np.where(is_key[:, None], 0.0, np.arccos(c))
    features = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    features[2, 5] = 0.0
    result = probes.patch_redundancy(features.reshape(-1, 2), a.ravel(), unit, row, col, is_key=is_key)
    assert result.similarity.n_no_direction == 1
    hole = c.copy()
    hole[2, 5] = np.nan
    hole = hole[~is_key]
    expected = []
    for k in range(len(hole)):
        weight = np.where(np.isnan(hole), 0.0, np.roll(a[~is_key], k, axis=0))
        expected.append(np.nansum(hole * weight) / weight.sum() - np.nanmean(hole))
    assert result.redundancy_preference == pytest.approx(expected[0], abs=1e-12)
    assert result.nulls["time"].observed == pytest.approx(expected[0], abs=1e-12)
    assert result.nulls["time"].mean == pytest.approx(np.mean(expected[1:]), abs=1e-12)


def test_order_of_tokens_and_scale_of_attention_do_not_matter():
    rng = np.random.default_rng(13)
    unit, row, col = np.indices((12, ROWS, COLS)).reshape(3, -1)
    features, attention = rng.normal(size=(unit.size, 5)), rng.gamma(1.0, size=unit.size)
    order = rng.permutation(unit.size)
    first = probes.patch_redundancy(features, attention, unit, row, col)
    second = probes.patch_redundancy(
        features[order], 0.01 * attention[order], unit[order], row[order], col[order]
    )
    for name, value in first.measures().items():
        assert second.measures()[name] == pytest.approx(value, abs=1e-9), name


def test_every_name_it_gives_is_a_measure():
    assert set(planted(*noise(14)).measures()) <= set(probes.MEASURES)


def test_bad_input_is_refused():
    c, a, is_key = noise(15, n_units=8)
    with pytest.raises(ValueError, match="negative or infinite"):
        planted(c, -a, is_key)
    with pytest.raises(ValueError, match="times are given"):
        planted(c, a, is_key, unit_seconds=np.arange(3.0))
