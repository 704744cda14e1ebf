import json
import re
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnostics.scoring.letters import extract_letter

OPTIONS = ["Cecum", "Ileocecal valve", "Hepatic flexure", "Rectum"]
REPLIES = [
    json.loads(line)
    for line in (Path(__file__).parent / "replies.jsonl").read_text(encoding="utf-8").splitlines()
]


@pytest.mark.parametrize("case", REPLIES, ids=lambda case: case["reply"][:40] or "empty")
def test_replies_seen_in_the_wild(case):
    found = extract_letter(case["reply"], OPTIONS)
    assert found.letter == case["letter"], found


@pytest.mark.parametrize(
    ("reply", "rule"),
    [
        ("<answer>B</answer>", "tag"),
        ("Answer: B", "answer_line"),
        ("(B)", "whole"),
        ("The answer is B", "statement"),
        ("B. It opens there", "leading"),
        ("I would choose B.", "choice"),
        ("It is the ileocecal valve.", "option_text"),
        ("", "empty"),
        ("<think>B", "cut_off"),
        ("The answer is B and C", "several"),
        ("F", "outside"),
        ("B. Rectum", "contradiction"),
        ("Who knows", "no_letter"),
    ],
)
def test_the_rule_that_fired_is_reported(reply, rule):
    assert extract_letter(reply, OPTIONS).rule == rule


def test_open_ended_items_have_no_letter():
    found = extract_letter("B", [])
    assert (found.letter, found.rule) == (None, "no_options")


def test_option_text_counts_as_an_answer_only_where_it_is_stated():
    colours = ["red", "dark red", "blue", "green"]
    assert extract_letter("The lesion is dark red.", colours).letter == "B", (
        "the longer text, not the one in it"
    )
    assert extract_letter("The lesion is red.", colours).letter == "A"
    assert extract_letter("A red lesion beside the fold.", colours).letter is None
    assert extract_letter("The lesion is not blue.", colours).letter is None
    assert extract_letter("It is blue or it is green.", colours).letter is None


def test_more_options_than_four():
    options = [f"finding {number}" for number in range(8)]
    assert extract_letter("The answer is H.", options).letter == "H"
    assert extract_letter("The answer is I.", options).rule == "outside"


_WRAPPINGS = [
    "{}",
    "({})",
    "[{}]",
    "{}.",
    "**{}**",
    "Answer: {}",
    "The answer is {}.",
    "The correct option is ({}).",
    "<answer>{}</answer>",
    "\\boxed{{{}}}",
    "I would choose {}.",
    "{}\n\nThe rest of the video shows nothing else.",
    "<think>Perhaps A, or B? D has it.</think>\n{}",
]


@settings(max_examples=60, deadline=None)
@given(place=st.integers(0, 3), form=st.sampled_from(_WRAPPINGS), order=st.permutations(OPTIONS))
def test_a_named_letter_is_found_whatever_the_options_say(place, form, order):
    letter = "ABCD"[place]
    assert extract_letter(form.format(letter), order).letter == letter


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=["L", "So", "Sm", "No", "Nl", "Nd"]), max_size=80))
def test_no_letter_no_answer(reply):
    assert extract_letter(reply, OPTIONS).letter is None


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=80))
def test_any_text_gives_an_option_or_none(reply):
    assert extract_letter(reply, OPTIONS).letter in {None, "A", "B", "C", "D"}


_WORDS = st.lists(
    st.sampled_from(
        ["a", "the", "scope", "snare", "video", "shows", "polyp", "then", "withdrawn", "bleeding"]
    ),
    min_size=2,
    max_size=8,
)


@settings(max_examples=100, deadline=None)
@given(_WORDS)
def test_a_description_that_opens_with_the_article_is_no_answer(words):
    sentence = "A " + " ".join(words) + "."
    assert extract_letter(sentence, OPTIONS).letter is None, "the article is not option A"


@settings(max_examples=60, deadline=None)
@given(
    first=st.sampled_from("ABCD"),
    second=st.sampled_from("ABCD"),
    link=st.sampled_from([" and ", " or ", ", ", "/"]),
)
def test_two_letters_are_never_narrowed_to_one(first, second, link):
    reply = f"The answer is {first}{link}{second}."
    found = extract_letter(reply, OPTIONS)
    assert found.letter is None, found


@pytest.mark.parametrize(
    "reply",
    ["is " * 5000, "answer is " * 5000, "The answer is " + "likely " * 5000, "(" * 8000, "A, " * 5000],
)
def test_degenerate_repetition_takes_no_time(reply):
    start = time.process_time()
    assert extract_letter(reply, OPTIONS).letter is None
    assert time.process_time() - start < 1.0, "a regular expression backtracks"


def test_the_fixture_covers_every_letter_and_none():
    assert {case["letter"] for case in REPLIES} == {None, "A", "B", "C", "D"}
    assert sum(case["letter"] is None for case in REPLIES) > 30
    assert not any(re.search(r"\s$", case["letter"] or "") for case in REPLIES)
