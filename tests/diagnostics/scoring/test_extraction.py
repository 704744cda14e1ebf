"""The extraction ladder on cases written before it was tuned, and what holds of every case of a kind."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnostics.data.items import option_letter
from diagnostics.scoring import EXTRACTOR_VERSION, extract_letter

FOLDER = Path(__file__).parent
OPTIONS = ["Cecum", "Ileocecal valve", "Hepatic flexure", "Rectum"]
TEN = ["snare", "forceps", "needle", "clip applier", "basket", "balloon", "net", "knife", "cap", "brush"]


def cases(name: str) -> list[dict]:
    return [json.loads(line) for line in (FOLDER / name).read_text(encoding="utf-8").splitlines()]


CASES = cases("extraction_cases.jsonl")
LATER = cases("extraction_cases_later.jsonl")


def share(reply: str, options: list[str]) -> str:
    key = json.dumps([reply, options], ensure_ascii=False).encode()
    return "held_out" if int(hashlib.sha256(key).hexdigest(), 16) % 3 == 0 else "tune"


def test_the_cases_are_split_by_their_hash_alone():
    assert all(case["split"] == share(case["reply"], case["options"]) for case in CASES)
    counts = Counter(case["split"] for case in CASES)
    assert len(CASES) >= 150
    assert counts["held_out"] / len(CASES) == pytest.approx(1 / 3, abs=0.05)
    assert {len(case["options"]) for case in CASES} >= {2, 3, 4, 5, 6, 10}


@pytest.mark.parametrize("case", [*CASES, *LATER], ids=lambda case: case["reply"][:40] or "empty")
def test_replies_written_before_the_ladder_was_tuned(case):
    found = extract_letter(case["reply"], case["options"])
    assert found.letter == case["letter"], (found, case["note"])


def test_the_version_is_a_short_text():
    assert EXTRACTOR_VERSION.strip() == EXTRACTOR_VERSION != ""


CUES = [
    "Answer: {}",
    "The answer is {}.",
    "答案是{}",
    "正确答案：{}。",
    "正解は{}です。",
    "정답은 {}입니다.",
    "Die richtige Antwort ist {}.",
    "La bonne réponse est {}.",
    "La respuesta correcta es {}.",
    "A resposta correta é {}.",
    "La risposta corretta è {}.",
    "Правильный ответ: {}.",
    "الإجابة الصحيحة هي {}.",
    "सही उत्तर {} है।",
    "Đáp án: {}",
    "<answer>{}</answer>",
    "\\boxed{{{}}}",
    '{{"answer": "{}"}}',
]


def wide(letter: str) -> str:
    return chr(ord(letter) + 0xFEE0)


def circled(letter: str) -> str:
    return chr(ord("Ⓐ") + ord(letter) - ord("A"))


def bold(letter: str) -> str:
    return chr(0x1D400 + ord(letter) - ord("A"))


@settings(max_examples=150, deadline=None)
@given(
    place=st.integers(0, 9),
    cue=st.sampled_from(CUES),
    written=st.sampled_from(
        [str, wide, circled, bold, lambda letter: f"({letter})", lambda letter: f"**{letter}**"]
    ),
    options=st.integers(2, 10),
)
def test_every_cue_reads_every_letter_in_every_writing(place, cue, written, options):
    letter = option_letter(place)
    found = extract_letter(cue.format(written(letter)), TEN[:options])
    expected = letter if place < options else None
    assert found.letter == expected, found
    assert place < options or found.rule == "outside"


@settings(max_examples=60, deadline=None)
@given(
    place=st.integers(0, 9),
    digit=st.sampled_from(
        [str, lambda n: chr(0xFF10 + n) if n < 10 else str(n), lambda n: chr(0x2460 + n - 1)]
    ),
    cue=st.sampled_from(
        ["{}", "({})", "{}.", "Answer: {}", "Option {}", "选项{}", "答案是{}", "<answer>{}</answer>"]
    ),
)
def test_digits_name_places_where_no_option_has_a_number(place, digit, cue):
    reply = cue.format(digit(place + 1))
    assert extract_letter(reply, TEN).letter == option_letter(place)
    numbered = [*TEN[:-1], f"{place + 1} brushes"]
    assert extract_letter(reply, numbered).letter is None, "the number may be an option's"


@settings(max_examples=60, deadline=None)
@given(first=st.sampled_from("ABCD"), last=st.sampled_from("ABCD"), cue=st.sampled_from(CUES[:15]))
def test_the_last_statement_counts(first, last, cue):
    reply = f"{cue.format(first)}\nWait, the last minute shows something else.\n{cue.format(last)}"
    assert extract_letter(reply, OPTIONS).letter == last


REASONING = [
    "<think>{}</think>\n",
    "◁think▷{}◁/think▷",
    "[THINK]{}[/THINK]",
    "<seed:think>{}</seed:think>",
    "{}</think>",
    "<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>",
]


@settings(max_examples=60, deadline=None)
@given(
    inner=st.sampled_from(CUES),
    thought=st.sampled_from("ABCD"),
    form=st.sampled_from(REASONING),
    cue=st.sampled_from(CUES),
)
def test_what_was_thought_is_never_the_answer(inner, thought, form, cue):
    reasoning = form.format(inner.format(thought))
    assert extract_letter(reasoning + cue.format("C"), OPTIONS).letter == "C"
    assert extract_letter(reasoning, OPTIONS).letter is None


@settings(max_examples=60, deadline=None)
@given(order=st.permutations(OPTIONS), place=st.integers(0, 3))
def test_an_options_text_is_read_wherever_it_stands_in_the_list(order, place):
    for form in (
        "{}",
        "The {}.",
        "It is the {}.",
        "The correct answer is the {}.",
        "Answer: {}",
        "<answer>{}</answer>",
    ):
        assert extract_letter(form.format(order[place]), order).letter == option_letter(place), form


def test_options_whose_text_is_a_letter_are_not_mixed_up_with_letters():
    groups = ["B", "A", "AB", "0"]
    assert extract_letter("B", groups).rule == "contradiction", "the option B, or the option that says B"
    assert extract_letter("A. B", groups).letter == "A"
    assert extract_letter("AB", groups).letter == "C"


LOOPS = [
    *(
        "A the ",
        "is ",
        "The answer is the the ",
        "{",
        '{"a":',
        "<answer>",
        "<think>x</think>",
        "\n",
        "Answer: ",
        "不是A",
    ),
    *(
        "\\boxed{",
        "most likely ",
        "(A) ",
        "A - - - ",
        "the option is ",
        "cecum is ",
        "it is ",
        "`",
        "_",
        "- ",
    ),
]


@pytest.mark.parametrize("piece", LOOPS)
def test_a_model_that_loops_is_read_to_its_end(piece):
    """Neither an error (nested JSON) nor a pattern that backtracks: that would take minutes here."""
    assert extract_letter(piece * 5000, OPTIONS).letter in {None, "A"}, "only A is ever named"
