import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score

from diagnostics.data.items import Item
from diagnostics.scoring import accuracy, score_logprobs, score_reply


def item(answer="B", options=("red", "green", "blue")):
    return Item("i", Path("v.mp4"), "v.mp4", "Which?", options, answer)


def test_a_reply_is_right_wrong_or_none_which_is_wrong():
    right, wrong, none = (score_reply(item(), reply) for reply in ("B", "The answer is C.", "I can't say."))
    assert (right.answer, right.correct, right.target, right.rule) == ("B", True, "B", "whole")
    assert (wrong.answer, wrong.correct) == ("C", False)
    assert (none.answer, none.correct) == (None, False)


def test_no_target_is_neither_right_nor_wrong():
    assert score_reply(item(answer=None), "B").correct is None
    open_ended = score_reply(item(answer="a snare", options=()), "a snare")
    assert open_ended.correct is None
    assert open_ended.target is None, "a reference text is no option's letter"


def test_logprobs_are_a_rule_of_their_own():
    score = score_logprobs(item(), {"A": -2.0, "B": -0.1, "C": -3.0})
    assert (score.answer, score.rule, score.correct) == ("B", "option_logprobs", True)
    assert score_logprobs(item(), {"A": -1.0, "B": -1.0, "C": -3.0}).rule == "option_logprobs_tie"
    assert score_logprobs(item(), {"A": -1.0, "B": math.nan, "C": -3.0}).answer is None
    assert score_logprobs(item(), {"A": -math.inf, "B": -5.0, "C": -math.inf}).answer == "B"
    with pytest.raises(ValueError, match="log-probabilities"):
        score_logprobs(item(), {"A": -1.0, "B": -1.0})


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("ABC"), st.sampled_from(["A", "B", "C", "nothing"])),
        min_size=1,
        max_size=30,
    )
)
def test_accuracy_agrees_with_scikit_learn(pairs):
    result = accuracy(score_reply(item(answer=target), reply) for target, reply in pairs)
    targets, replies = zip(*pairs, strict=True)
    assert result.n == len(pairs)
    assert result.accuracy == pytest.approx(accuracy_score(targets, replies), abs=1e-12)
    assert result.none_rate == pytest.approx(np.mean([reply == "nothing" for reply in replies]), abs=1e-12)


def test_accuracy_of_nothing_is_undefined_not_zero():
    result = accuracy([score_reply(item(answer=None), "B")])
    assert (result.accuracy, result.none_rate, result.n) == (None, None, 0)
