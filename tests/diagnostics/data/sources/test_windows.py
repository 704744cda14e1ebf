"""Time windows in words, against phrasings written before the parser, a third of them kept aside."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnostics.data.build.findings import clock
from diagnostics.data.sources.windows import ROUNDING, Asked, Unread, clock_style, read_window

HERE = Path(__file__).parent
HOUR = 3600.0


def phrasings(name):
    return [json.loads(line) for line in (HERE / name).read_text(encoding="utf-8").splitlines()]


FIRST = phrasings("phrasings.jsonl")
TUNED = [row for row in FIRST if not row["held_out"]]
HELD_OUT = [row for row in FIRST if row["held_out"]]


def read(row):
    return read_window(
        row["text"], row["duration"], fps=row.get("fps"), instant_seconds=row.get("instant_seconds")
    )


def window(result):
    return [result.start, result.end] if isinstance(result, Asked) else None


def told(result):
    return result.form if isinstance(result, Asked) else result.why


def test_a_third_of_at_least_120_phrasings_is_kept_aside():
    assert len(FIRST) >= 120
    assert len(
        {(row["text"], row["duration"], row.get("fps"), row.get("instant_seconds")) for row in FIRST}
    ) == len(FIRST)
    assert abs(len(HELD_OUT) / len(FIRST) - 1 / 3) < 0.01
    assert sum(row["window"] is None for row in HELD_OUT) > 10


@pytest.mark.parametrize("row", TUNED, ids=lambda row: row["text"][:60])
def test_phrasings_the_parser_was_made_with(row):
    result = read(row)
    assert window(result) == (pytest.approx(row["window"]) if row["window"] else None)
    if row["form"] != "words":
        assert told(result) == row["form"]


def test_phrasings_kept_aside():
    """At first sight 106 of the others were read rightly, three not at all; of these all 55 rightly."""
    wrong = [
        row["text"] for row in HELD_OUT if (got := window(read(row))) and got != pytest.approx(row["window"])
    ]
    assert not wrong
    missed = [row["text"] for row in HELD_OUT if row["window"] and window(read(row)) is None]
    assert not missed


@pytest.mark.parametrize("row", phrasings("phrasings_later.jsonl"), ids=lambda row: row["text"][:60])
def test_phrasings_that_were_made_up_to_mislead_it(row):
    result = read(row)
    assert (window(result), told(result)) == (row["window"], row["form"])


# -- what is written is read


def decimal(value, places=3):
    return f"{value:.{places}f}".rstrip("0").rstrip(".")


def m_ss(seconds):
    whole = int(seconds)
    return f"{whole // 60:02}:{whole % 60:02}" + decimal(seconds - whole)[1:]


def in_units(seconds):
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours} h {minutes} min {decimal(rest)} s"


WRITE = {
    "seconds": lambda s: f"{decimal(s)} s",
    "seconds spelled out": lambda s: f"{decimal(s)} seconds",
    "thousands": lambda s: f"{s:,.3f} seconds",
    "milliseconds": lambda s: f"{round(s * 1000)} ms",
    "h:mm:ss": clock,
    "hh:mm:ss": lambda s: clock(s).rjust(len(clock(s)) + (s < 10 * HOUR), "0"),
    "hh:mm:ss with a comma": lambda s: clock(s).replace(".", ","),
    "mm:ss told": lambda s: f"{m_ss(s)} (mm:ss)",
    "units": in_units,
    "compact units": lambda s: in_units(s).replace(" ", "").replace("min", "m"),
}
JOIN = {
    "between": "Which phase is under way between {} and {}?",
    "from": "From {} to {}, which step is carried out?",
    "during": "Which region is seen during {} – {} of the video?",
    "bracket": "In the time window [{}, {}), which phase is it?",
    "start": "Starting at {} and ending at {}, what does the video show?",
    "until": "What is done from {} until {} with a 5 to 12 mm trocar?",
}


@st.composite
def windows(draw):
    """A window in whole milliseconds, at least two rounding errors long, and a video it lies in."""
    duration = draw(st.integers(10_000, 40 * 3_600_000))
    start = draw(st.integers(0, duration - 3000))
    end = draw(st.integers(start + 2500, duration))
    return start / 1000, end / 1000, duration / 1000


@given(windows(), st.sampled_from(sorted(WRITE)), st.sampled_from(sorted(JOIN)))
@settings(max_examples=300, deadline=None)
def test_a_window_in_each_form_is_read_back(case, form, join):
    start, end, duration = case
    text = JOIN[join].format(WRITE[form](start), WRITE[form](end))
    result = read_window(text, duration)
    assert isinstance(result, Asked), (text, duration, result)
    assert (result.start, result.end) == pytest.approx((start, end), abs=1e-6), (text, result)


@given(windows(), st.sampled_from(sorted(JOIN)))
@settings(max_examples=150, deadline=None)
def test_a_clock_of_two_parts_is_read_back_or_said_to_be_ambiguous(case, join):
    start, end, duration = int(case[0]), int(case[1]), case[2]
    text = JOIN[join].format(m_ss(start), m_ss(end))
    as_hours = start * 60 < end * 60 <= duration + ROUNDING  # "12:30" is 12 h 30 min, sixty times m:ss
    result = read_window(text, duration)
    if as_hours:
        assert result == Unread("ambiguous", result.text), text
    else:
        assert window(result) == [start, end], (text, duration, result)
    by_style = read_window(text, duration, style="m:ss")
    assert window(by_style) == [start, end]


@given(windows(), st.sampled_from(sorted(JOIN)))
@settings(max_examples=100, deadline=None)
def test_reversed_and_overrunning_windows_are_refused(case, join):
    start, end, duration = case
    backwards = JOIN[join].format(clock(end), clock(start))
    assert told(read_window(backwards, duration)) == "reversed"
    late = JOIN[join].format(clock(start), clock(duration + 1.5))
    assert told(read_window(late, duration)) == "beyond"


@given(st.integers(0, 99), st.integers(1, 100), st.floats(60, 1e5))
@settings(max_examples=60, deadline=None)
def test_percent_is_of_the_duration(low, more, duration):
    high = min(low + more, 100)
    result = read_window(f"Which step is seen between {low}% and {high}% of the video?", duration)
    assert window(result) == pytest.approx([low / 100 * duration, high / 100 * duration])


@given(st.integers(0, 10**6), st.integers(1, 1000), st.floats(0.5, 60))
@settings(max_examples=60, deadline=None)
def test_frames_need_a_rate(first, more, fps):
    text = f"Which region is seen from frame {first} to frame {first + more}?"
    duration = (first + more + 1) / fps
    assert window(read_window(text, duration, fps=fps)) == pytest.approx([first / fps, (first + more) / fps])
    assert told(read_window(text, duration)) == "frames"


PIECES = st.sampled_from(
    re.findall(
        r"\S+",
        "between and from to - : , . ? [ ( ) ] 12:30 1:02:03 754 12 40% 5 s min hours minute frame of the "
        "video after phase first last lesion mm second (mm:ss) at in during 00:00 99:99 1,200 0.5 ' \" the "
        "end start for next",
    )
)


@given(st.lists(PIECES, max_size=14).map(" ".join) | st.text(max_size=60), st.floats(1, 1e5))
@settings(max_examples=400, deadline=None)
def test_any_text_is_read_or_named(text, duration):
    result = read_window(text, duration, fps=25.0, instant_seconds=10.0)
    if isinstance(result, Asked):
        assert 0 <= result.start < result.end <= duration
    else:
        assert result.why


BESIDE = (
    "Which phase follows the one seen {}?",
    "Which step directly precedes the interval {}?",
    "Outside the window {}, which phase is most common?",
    "The surgeon sutures {}. Which phase comes next?",
    "Which phase is it except {}?",
)


@given(windows(), st.sampled_from(BESIDE))
@settings(max_examples=60, deadline=None)
def test_what_lies_beside_a_window_is_not_in_it(case, question):
    start, end, duration = case
    for span in (f"between {clock(start)} and {clock(end)}", f"from {decimal(start)} s to {decimal(end)} s"):
        assert told(read_window(question.format(span), duration)) == "relative"
        inside = read_window(f"Which of the following phases is seen {span}?", duration)
        assert window(inside) == pytest.approx([start, end])


# -- what was decided


def test_an_end_that_was_rounded_up_is_cut_at_the_end_of_the_video():
    assert window(read_window("Between 0:01:00 and 0:01:30, which phase is it?", 89.4)) == [60.0, 89.4]


def test_the_style_of_clocks_is_found_in_the_other_questions():
    open_question = "Which region is seen between 1:05 and 1:15?"
    clear = [("Which phase is it between 75:30 and 75:42?", 5400.0), ("Which is it at 1:05?", 5400.0)]
    by_hours = ("Which region is seen between 3:30 h and 3:40 h?", 10 * HOUR)
    assert told(read_window(open_question, 10 * HOUR)) == "ambiguous"
    assert clock_style([(open_question, 10 * HOUR)]) is None
    assert clock_style([(open_question, 10 * HOUR), *clear]) == "m:ss"
    assert clock_style([by_hours]) == "h:mm"
    assert clock_style([by_hours, *clear]) is None
    assert window(read_window(open_question, 10 * HOUR, style="m:ss")) == [65.0, 75.0]
    assert window(read_window(open_question, 10 * HOUR, style="h:mm")) == [3900.0, 4500.0]


def test_a_style_overrules_no_clock_that_has_one_reading():
    text = "Which phase is it between 75:30 and 75:42?"
    assert window(read_window(text, 5400.0, style="h:mm")) == [4530.0, 4542.0]


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), float("inf")])
def test_numbers_that_are_none(wrong):
    with pytest.raises(ValueError, match="positive"):
        read_window("Which phase is it?", wrong)
    with pytest.raises(ValueError, match="positive"):
        read_window("Which phase is it?", 60.0, fps=wrong)
