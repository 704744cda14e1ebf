"""Linear probes: a planted signal at its layer, chance where there is none, and leaks that controls show."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import balanced_accuracy_score

import probes

VIDEOS, UNITS, DIM = 12, 10, 8
QUICK = {"shuffles": 3, "n_resamples": 200}


def samples(seed=0):
    """Noise states, the video and the place of each unit, and a label that each video has in other places."""
    random = np.random.default_rng(seed)
    videos = np.repeat(np.arange(VIDEOS), UNITS)
    place = np.tile(np.arange(UNITS) / (UNITS - 1), VIDEOS)
    label = np.concatenate([random.permutation(np.arange(UNITS) < 3) for _ in range(VIDEOS)])
    return random, random.normal(size=(VIDEOS * UNITS, DIM)), videos, place, label


def test_a_planted_signal_is_read_at_its_layer_and_not_at_the_others():
    random, noise, videos, place, label = samples()
    layers = np.stack([noise, noise + 4.0 * label[:, None] * np.eye(DIM)[2], random.normal(size=noise.shape)])
    without, planted, other = probes.probe_layers(layers, label, videos, position=place, **QUICK)
    assert planted.score.mean > 0.9
    assert planted.score.ci_low > planted.shuffled.mean
    assert planted.selectivity.ci_low > 0.25
    assert planted.beyond_position.ci_low > 0.2
    assert (planted.chance, planted.classes, planted.exchanged) == (0.5, 2, "within")
    for score in (without, other):
        assert abs(score.score.mean - 0.5) < 0.15
        assert score.selectivity.ci_low < 0.05


def test_a_leak_by_position_is_shown_by_the_probe_of_position_alone():
    _, noise, videos, place, _ = samples()
    middle = (place > 0.3) & (place < 0.6)  # no line through the place tells it, a spline does
    states = noise + 5.0 * middle[:, None] * np.eye(DIM)[0]
    found = probes.fit_probe(states, middle, videos, position=place, **QUICK)
    assert found.score.mean > 0.9
    assert found.position_only.mean > 0.9
    assert found.beyond_position.ci_low < 0.05, "what it reads, the place alone tells"


def test_a_label_of_whole_videos_is_exchanged_between_videos_and_stays_at_chance():
    random, noise, videos, _, _ = samples()
    coin = np.array(["tails", "heads"])[random.permutation(np.arange(VIDEOS) % 2)][videos]
    own = noise + 3.0 * random.normal(size=(VIDEOS, DIM))[videos]  # videos are easily told apart
    found = probes.fit_probe(own, coin, videos, **QUICK)
    assert found.exchanged == "across"
    assert found.score.ci_low <= 0.5 <= found.score.ci_high
    unsplit = LogisticRegression(max_iter=1000).fit(own, coin)
    assert balanced_accuracy_score(coin, unsplit.predict(own)) > 0.8, "without the split it would be read"


def test_the_score_is_that_of_scikit_learn_on_the_videos_held_out():
    _, noise, videos, _, label = samples(3)
    states = noise + 1.0 * label[:, None] * np.eye(DIM)[1]
    found = probes.fit_probe(states, label, videos, folds=VIDEOS, **QUICK)
    said = np.empty_like(label)
    for video in range(VIDEOS):
        train = videos != video
        mean, std = states[train].mean(0), states[train].std(0)
        model = LogisticRegression(C=1 / (0.1 * train.sum()), class_weight="balanced", max_iter=1000)
        model.fit((states[train] - mean) / std, label[train])
        said[~train] = model.predict((states[~train] - mean) / std)
    assert found.score.mean == pytest.approx(balanced_accuracy_score(label, said), abs=1e-9)


def test_ridge_reads_a_number_and_says_how_much_of_it():
    random, noise, videos, place, _ = samples(4)
    shuffled_places = np.concatenate([random.permutation(UNITS) / UNITS for _ in range(VIDEOS)])
    states = noise + 5.0 * shuffled_places[:, None] * np.eye(DIM)[3]
    found = probes.fit_probe(
        states, shuffled_places, videos, kind="ridge", position=place, folds=VIDEOS, **QUICK
    )
    error = spread = 0.0
    for video in range(VIDEOS):
        train = videos != video
        mean, std = states[train].mean(0), states[train].std(0)
        model = Ridge(alpha=0.1 * train.sum()).fit((states[train] - mean) / std, shuffled_places[train])
        error += ((shuffled_places[~train] - model.predict((states[~train] - mean) / std)) ** 2).sum()
        spread += ((shuffled_places[~train] - shuffled_places[train].mean()) ** 2).sum()
    assert found.score.mean == pytest.approx(1 - error / spread, abs=1e-9)
    assert found.selectivity.ci_low > 0.3
    assert found.position_only.mean < 0.1
    assert (found.chance, found.classes) == (0.0, 0)


def test_no_video_is_in_two_folds_and_three_classes_have_their_chance():
    random, noise, videos, _, _ = samples(5)
    kind = random.integers(0, 3, len(videos))
    found = probes.fit_probe(noise, kind, videos, **QUICK)
    assert found.chance == pytest.approx(1 / 3)
    assert abs(found.score.mean - 1 / 3) < 0.15
    assert found.position_only is None
    assert found.beyond_position is None


def test_pairs_are_of_different_units_and_of_either_direction():
    pairs = probes.unit_pairs(10, 30, seed=1)
    assert pairs.shape == (30, 2)
    assert (pairs[:, 0] != pairs[:, 1]).all()
    assert len({tuple(sorted(pair)) for pair in pairs.tolist()}) == 30
    assert (pairs[:, 0] < pairs[:, 1]).sum() == 15
    assert len(probes.unit_pairs(3, 30)) == 3
    assert probes.unit_pairs(1, 5).shape == (0, 2)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"videos": [0] * 120}, "1 video is too few"),
        ({"labels": np.ones(120)}, "two classes"),
        ({"labels": np.arange(120) < 3}, "only one video has the class True"),
        ({"labels": np.ones(120), "kind": "ridge"}, "same number"),
        ({"labels": np.full(120, np.nan), "kind": "ridge"}, "finite"),
        ({"labels": [0, 1]}, "2 labels belong to 120"),
        ({"states": np.full((120, 2), np.inf)}, "not finite"),
        ({"position": np.zeros(3)}, "position of 120"),
        ({"shuffles": 0}, "at least one exchange"),
        ({"folds": 1}, "at least 2 folds"),
    ],
)
def test_what_cannot_be_probed_is_refused_before_any_fit(change, told, monkeypatch):
    _, noise, videos, _, label = samples()

    def never(*_args, **_options):
        raise AssertionError("a probe was fitted")

    monkeypatch.setattr("probes.linear._sums", never)
    given = {"states": noise, "labels": label, "videos": videos, **change}
    with pytest.raises(ValueError, match=told):
        probes.fit_probe(**given)
