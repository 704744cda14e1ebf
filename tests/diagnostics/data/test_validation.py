import math
import pickle
from pathlib import Path

import pytest

from diagnostics.data.items import Evidence, Item, Window
from diagnostics.data.validation import check_evidence, resolve_answer, resolve_options
from diagnostics.errors import (
    AnswerNotAnOptionError,
    EvidenceOutsideVideoError,
    RecordError,
    TooFewOptionsError,
)


@pytest.mark.parametrize(
    "written",
    [
        ["red", "blue"],
        [" red ", "blue"],
        ["A. red", "B. blue"],
        ["(A) red", "(B) blue"],
        ["A) red", "B) blue"],
        {"A": "red", "B": "blue"},
    ],
)
def test_options_lose_their_letters(written):
    assert resolve_options(written) == ("red", "blue")


def test_an_initial_is_no_letter_unless_all_have_theirs():
    assert resolve_options(["A. fumigatus", "C. albicans"]) == ("A. fumigatus", "C. albicans")


@pytest.mark.parametrize(
    "written", [["red", ""], ["red", 3], "red", {"A": "red", "C": "blue"}, [str(n) for n in range(27)]]
)
def test_options_that_are_no_texts(written):
    with pytest.raises(RecordError):
        resolve_options(written)


def test_one_option_is_too_few():
    with pytest.raises(TooFewOptionsError):
        resolve_options(["red"])
    assert resolve_options([]) == ()


@pytest.mark.parametrize("written", ["B", "b", "(B)", "B.", "blue", "B. blue", "(B) blue"])
def test_an_answer_by_letter_or_text(written):
    assert resolve_answer(written, ["red", "blue"]) == "B"


def test_an_answer_by_number_where_the_format_counts():
    assert resolve_answer(1, ["red", "blue"], index_base=0) == "B"
    assert resolve_answer(1, ["red", "blue"], index_base=1) == "A"
    with pytest.raises(AnswerNotAnOptionError):
        resolve_answer(2, ["red", "blue"], index_base=0)
    with pytest.raises(AnswerNotAnOptionError):
        resolve_answer(0, ["red", "blue"], index_base=1)
    with pytest.raises(RecordError):
        resolve_answer(1, ["red", "blue"])


@pytest.mark.parametrize(
    ("written", "options"),
    [
        ("blu", ["red", "blue"]),
        ("C", ["red", "blue"]),
        ("B. red", ["red", "blue"]),
        ("A", ["B", "A"]),  # the letter says the first, the text the second
        ("blue", ["blue", "blue"]),
        ("A", ["blue", "blue"]),
    ],
)
def test_an_answer_that_names_none_or_two(written, options):
    with pytest.raises(AnswerNotAnOptionError):
        resolve_answer(written, options)


def test_a_reference_text_stays_as_it_is():
    assert resolve_answer(" the snare ", []) == "the snare"


def item(*windows, kind="exact"):
    return Item("i", Path("v.mp4"), "v.mp4", "?", evidence=Evidence(windows, kind))


def test_evidence_is_checked_against_the_real_video():
    fine = item(Window(0.0, 5.0), Window(9.0, 10.4))
    assert check_evidence(fine, 10.0, 80) == fine, "half a second past the end is rounding"
    for bad in (
        Window(9.0, 10.6),
        Window(10.0, 10.4),
        Window(0, 1, 0, 81),
        Window(math.nan, math.nan, 70, 81),
    ):
        with pytest.raises(EvidenceOutsideVideoError, match="outside the video") as caught:
            check_evidence(item(bad), 10.0, 80)
        assert caught.value.item_id == "i"
        assert "80 frames" in str(caught.value)


def test_windows_in_frames_get_their_times():
    (window,) = check_evidence(item(Window(math.nan, math.nan, 40, 44)), 10.0, 80).evidence.windows
    assert (window.start_seconds, window.end_seconds) == pytest.approx((5.0, 5.5))
    assert (window.start_frame, window.end_frame) == (40, 44)


def test_no_evidence_or_global_evidence_needs_no_check():
    for evidence in (None, Evidence((), "global")):
        bare = Item("i", Path("v.mp4"), "v.mp4", "?", evidence=evidence)
        assert check_evidence(bare, 1.0, 1) is bare


def test_items_go_between_processes():
    sent = Item("i", Path("v.mp4"), "v.mp4", "?", metadata={"a": [1]})
    assert pickle.loads(pickle.dumps(sent)) == sent  # noqa: S301
    assert isinstance(hash(sent), int)
