from pathlib import Path

import numpy as np
import pytest

from diagnostics.data.items import Item, option_letter
from diagnostics.scoring import statistics

COLOURS = ("red", "green", "blue", "white")


def item(number, answer, *, video="v", options=COLOURS, question="Which colour?", task="colour"):
    return Item(str(number), Path("x.mp4"), video, question, tuple(options), answer, task)


def shuffled(n, pick, *, n_videos=20, seed=0, options=COLOURS, question="Which colour?"):
    """Items whose right option's text is `pick(rng)`, at a random position."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(n):
        order = [options[k] for k in rng.permutation(len(options))]
        answer = option_letter(order.index(pick(rng)))
        made.append(item(number, answer, video=f"v{number % n_videos}", options=order, question=question))
    return made


def test_the_best_constant_letter_by_hand():
    items = [item(0, "B"), item(1, "A"), item(2, "B"), item(3, None), item(4, "text", options=())]
    found = statistics.constant_letter_baseline(items)
    assert (found.letter, found.accuracy) == ("B", pytest.approx(2 / 3))
    assert found.by_letter == pytest.approx({"A": 1 / 3, "B": 2 / 3, "C": 0, "D": 0})
    assert found.correct[:3].tolist() == [1, 0, 1]
    assert np.isnan(found.correct[3:]).all()
    assert (found.n, found.n_undefined) == (3, 2)


def test_a_letter_that_an_item_lacks_is_wrong_there():
    items = [item(0, "D"), item(1, "D"), item(2, "A", options=("yes", "no"))]
    assert statistics.constant_letter_baseline(items).correct.tolist() == [1, 1, 0]


def test_majority_text_by_hand():
    items = [
        item(0, "A", video="a"),  # red, in video a
        item(1, "A", video="b"),  # red
        item(2, "A", video="b", options=("blue", "red")),  # blue
        item(3, "B", video="c", options=("BLUE ", "red")),  # red
    ]
    found = statistics.majority_text_baseline(items)
    # a: others say red 2, blue 1. b: others say red 2; b's own blue does not count. c: red 2, blue 1.
    assert found.correct.tolist() == [1, 1, 0, 1]
    assert (found.accuracy, found.n_undecided) == (0.75, 0)


def test_majority_text_shares_ties_and_does_not_look_at_its_own_video():
    items = [
        item(0, "A", video="a", options=("red", "blue")),
        item(1, "B", video="b", options=("red", "green")),
    ]
    found = statistics.majority_text_baseline(items)
    # a: green was right elsewhere, not among the options: a draw. b: red was, and is wrong.
    assert found.correct.tolist() == [0.5, 0.0]
    assert found.n_undecided == 1


def test_majority_text_is_by_task():
    items = [
        item(0, "A", video="a", options=("yes", "no"), task="one"),
        item(1, "A", video="b", options=("yes", "no"), task="one"),
        item(2, "B", video="a", options=("yes", "no"), task="two"),
        item(3, "B", video="b", options=("yes", "no"), task="two"),
    ]
    assert statistics.majority_text_baseline(items).correct.tolist() == [1, 1, 1, 1]


def test_text_only_finds_what_the_options_give_away():
    given_away = shuffled(160, lambda rng: "red" if rng.random() < 0.8 else "blue")
    found = statistics.text_only_baseline(given_away)
    assert found.accuracy > 0.7
    assert (found.n, found.n_undefined) == (160, 0)
    assert set(found.correct.tolist()) <= {0, 1}


def test_text_only_reads_the_question():
    """The right word depends on the question: neither the option nor the question alone tells it."""
    items = []
    for number, base in enumerate(shuffled(200, lambda rng: "red", n_videos=25)):
        asked = ("vessel", "mucosa")[number % 2]
        gold = base.options.index("red" if asked == "vessel" else "white")
        items.append(
            item(
                number,
                option_letter(gold),
                video=base.video_id,
                options=base.options,
                question=f"The {asked}?",
            )
        )
    assert statistics.text_only_baseline(items).accuracy > 0.9
    assert statistics.majority_text_baseline(items).accuracy < 0.6


def test_text_only_finds_nothing_where_nothing_is():
    blind = shuffled(300, lambda rng: COLOURS[rng.integers(4)], n_videos=60, seed=3)
    found = statistics.text_only_baseline(blind)
    test = statistics.against_chance(found.correct.round(), [4] * 300, [each.video_id for each in blind])
    # Four standard errors of 300 guesses among 4.
    assert found.accuracy == pytest.approx(0.25, abs=0.1), test


def test_text_only_is_no_oracle_within_a_video():
    """Each video has its own right word and no other video has it: nothing can be learned across videos."""
    items = []
    for video in range(24):
        words = [f"word{video}x{k}" for k in range(4)]
        items += [
            item(
                f"{video}-{k}",
                option_letter(k),
                video=f"v{video}",
                options=words[1 : 1 + k] + words[:1] + words[1 + k :],
            )
            for k in range(4)
        ]
    found = statistics.text_only_baseline(items)
    assert found.accuracy == pytest.approx(0.25, abs=0.2)
    majority = statistics.majority_text_baseline(items)
    assert (majority.accuracy, majority.n_undecided) == (0.25, 96)


def test_order_of_the_items_does_not_matter():
    items = shuffled(60, lambda rng: COLOURS[rng.integers(2)], n_videos=7)
    order = np.random.default_rng(1).permutation(60)
    moved = [items[k] for k in order]
    for baseline in (
        statistics.constant_letter_baseline,
        statistics.majority_text_baseline,
        statistics.text_only_baseline,
    ):
        assert baseline(moved).correct.tolist() == baseline(items).correct[order].tolist()


@pytest.mark.parametrize(
    "baseline",
    [
        statistics.constant_letter_baseline,
        statistics.majority_text_baseline,
        statistics.text_only_baseline,
    ],
)
@pytest.mark.parametrize("items", [[], [item(0, None)], [item(0, "free text", options=())]])
def test_no_items_are_undefined(baseline, items):
    found = baseline(items)
    assert np.isnan(found.accuracy)
    assert np.isnan(found.correct).all()
    assert (found.n, found.n_undefined, len(found.correct)) == (0, len(items), len(items))


@pytest.mark.parametrize("baseline", [statistics.majority_text_baseline, statistics.text_only_baseline])
def test_one_video_teaches_nothing(baseline):
    found = baseline([item(0, "A"), item(1, "B")])
    assert (found.n, found.n_undefined) == (0, 2)


def test_baselines_go_into_paired_differences():
    items = shuffled(40, lambda rng: "red")
    model = np.ones(40)
    letter = statistics.constant_letter_baseline(items)
    found = statistics.paired_difference(
        letter.correct, model, [each.video_id for each in items], n_resamples=100
    )
    assert found.difference == pytest.approx(1 - letter.accuracy)


def test_empty_texts_and_single_options_do_not_break_it():
    items = [item(k, "A", video=f"v{k}", options=("", "?"), question="") for k in range(6)]
    items += [item(9, "A", video="w", options=("only",))]
    assert statistics.text_only_baseline(items).n == 7
    with pytest.raises(ValueError, match="two folds"):
        statistics.text_only_baseline(items, n_folds=1)
