import numpy as np
import pytest
import torch
from scipy.stats import binomtest

from diagnostics.errors import ConfigError
from diagnostics.testbed.batches import make_batch
from diagnostics.testbed.checkpoint import processor
from diagnostics.testbed.curriculum import Stage
from diagnostics.testbed.lessons import look_up
from diagnostics.testbed.training import first_token_logits, learning_rate, train

SHORT = (Stage("look-up", 3, 8), Stage("video", 3, 8, (("Hist", 1.0), ("RSR", 1.0)), (2, 3), 0.25))


def weights(trained):
    return {name: value.clone() for name, value in trained.model.state_dict().items()}


def same(first, second):
    return all(torch.equal(first[name], second[name]) for name in first)


def test_a_stopped_run_goes_on_as_if_it_had_not(footage, tmp_path):
    whole = weights(train(footage, SHORT, 7, None, lambda progress: None))

    class StopError(Exception):
        pass

    def stop(progress):
        if progress.step == 4:
            raise StopError

    state = tmp_path / "training.pt"
    with pytest.raises(StopError):
        train(footage, SHORT, 7, state, stop, save_every=2)
    steps = []
    resumed = train(footage, SHORT, 7, state, lambda progress: steps.append(progress.step), save_every=2)
    assert steps == [5, 6]
    assert same(whole, weights(resumed))
    nothing_left = train(footage, SHORT, 7, state, lambda progress: None)
    assert nothing_left.seconds == resumed.seconds > 0
    other = train(footage, SHORT, 8, None, lambda progress: None)
    assert not same(whole, weights(other))


def test_the_learning_rate_warms_up_once_and_cools_where_a_stage_says_so():
    stages = (
        Stage("long", 100, 8),
        Stage("cooling", 100, 8, cool_down=50),
        Stage("last", 20, 8, cool_down=20),
    )
    rates = [learning_rate(stages, step) for step in range(220)]
    assert rates[0] == pytest.approx(1e-3 / 50)
    assert rates[49:151] == pytest.approx([1e-3] * 102)
    assert rates[199] == pytest.approx(1e-3 * (0.05 + 0.95 / 50))
    assert rates[175] == pytest.approx(1e-3 * (0.05 + 0.95 / 2))
    assert rates[200] == pytest.approx(1e-3), "the next stage begins at the full rate"
    assert rates[219] == pytest.approx(1e-3 * (0.05 + 0.95 / 20))
    with pytest.raises(IndexError):
        learning_rate(stages, 220)


def test_another_recipe_is_not_resumed(footage, tmp_path):
    state = tmp_path / "training.pt"
    train(footage, SHORT[:1], 7, state, lambda progress: None)
    with pytest.raises(ConfigError, match="another seed or curriculum"):
        train(footage, SHORT[:1], 8, state, lambda progress: None)
    with pytest.raises(ConfigError, match="another seed or curriculum"):
        train(footage, (Stage("look-up", 4, 8),), 7, state, lambda progress: None)
    steps = []
    train(footage, SHORT, 7, state, lambda progress: steps.append(progress.step))
    assert steps == [4, 5, 6], "stages may be added behind what was done"


def test_one_minute_learns_to_look_up(footage):
    """Loss falls, and held-out look-ups are answered above chance (binomial test, p < 0.001)."""
    losses = []
    stages = (Stage("look-up", 150, 128),)
    model = train(footage, stages, 0, None, lambda progress: losses.append(progress.loss)).model
    assert np.mean(losses[-10:]) < 0.3 * np.mean(losses[:50]), losses
    random = np.random.default_rng(123)
    asked = [look_up(footage, task, random) for task in ("Hist", "Site", "IR", "CPR") for _ in range(200)]
    asked = [lesson for lesson in asked if lesson.letters]
    logits = first_token_logits(model, make_batch(asked, footage))
    letters = [processor().tokenizer.encode(letter)[0] for letter in "ABCD"]
    said = ["ABCD"[int(row[letters].argmax())] for row in logits]
    right = sum(letter == lesson.answer for letter, lesson in zip(said, asked, strict=True))
    assert binomtest(right, len(asked), 0.25, alternative="greater").pvalue < 1e-3, f"{right}/{len(asked)}"
