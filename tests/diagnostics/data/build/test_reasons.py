"""Each reason for which a candidate is dropped, brought about by the smallest annotation that has it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from diagnostics.data.build import Config, build_in_memory
from diagnostics.data.build.annotations import VideoFacts

ABCDE = ["a", "b", "c", "d", "e"]


def rows(*written):
    return [{"start": start, "end": end, "label": label} for start, end, label in written]


def lesion(name, *windows, **attributes):
    return {"lesion": name, "windows": [list(window) for window in windows], **attributes}


def outcome(task, *, duration=100.0, fps=10.0, spaces=None, config=None, **tracks):
    """Items and reasons of one procedure, for one family."""
    whole = {
        "source": "s",
        "spaces": dict.fromkeys(("phases", "steps", "instruments", "sites"), ABCDE) | (spaces or {}),
        "procedures": [{"procedure": "case", "video": "a.mp4", **tracks}],
    }

    def probe(video: Path) -> VideoFacts:
        return VideoFacts(duration, fps, np.arange(round(duration * fps)) / fps)

    settings = Config(tasks=(task,), **(config or {}))
    items, audit = build_in_memory(whole, Path("/nowhere"), probe, settings)
    return items, [entry.reason for entry in audit.entries if entry.candidate is not None]


WHOLE = {"phases": rows((0, 50, "a"), (50, 100, "b"))}

CASES = {
    # a window of 200 s never fits
    "WindowOutsideVideoError": ("PR", {"phases": rows((0, 100, "a"))}, {"window_seconds": 200}),
    # runs of 5 s, windows of 20
    "IncompatibleLabelsError": (
        "PR",
        {"phases": rows(*((40 + 5 * n, 45 + 5 * n, ABCDE[n % 5]) for n in range(4)))},
        {"window_seconds": 20},
    ),
    "PartlyLabelledError": ("PR", {"phases": rows((40, 45, "a"))}, {"window_seconds": 20}),
    "IgnoredLabelError": ("PR", {"phases": rows((0, 100, "a"))}, {"ignored": ("a",), "options": 3}),
    # the phase begins, no instrument is there
    "AnswerMissingError": ("IR", {**WHOLE, "instruments": rows((20, 30, "a"))}, {}),
    "AmbiguousSubjectError": (
        "Site",
        {"lesions": [lesion("x", (5, 9), site="a"), lesion("y", (5, 12), site="b")]},
        {},
    ),
    # two largest lesions in two places
    "SeveralRightOptionsError": (
        "LLS",
        {"lesions": [lesion("x", (5, 9), site="a", size=7), lesion("y", (20, 30), site="b", size=7)]},
        {},
    ),
    "NoFrameError": ("Site", {"lesions": [lesion("x", (5.01, 5.05), site="a")]}, {}),
    "DoubtfulAnnotationError": ("CPR", {"steps": rows((0, 9, "a"), (12, 11, "b"))}, {}),
    "LabelSpaceTooSmallError": ("Site", {"lesions": [lesion("x", (5, 9), site="a")]}, {"options": 6}),
    "MalformedTextError": (
        "Site",
        {"lesions": [lesion("x", (5, 9), site="a")]},
        {"aliases": {"a": "tab\there"}},
    ),
    "OverQuotaError": ("PR", WHOLE, {"per_task": 1}),
    "DuplicateQuestionError": ("PR", {"phases": rows((0, 12, "a"))}, {"windows_per_run": 40}),
}


@pytest.mark.parametrize("reason", CASES)
def test_a_candidate_is_dropped_for(reason):
    task, tracks, config = CASES[reason]
    items, reasons = outcome(task, config=config, **tracks)
    assert reason in reasons, (reasons, items)
    if reason not in ("OverQuotaError", "DuplicateQuestionError", "WindowOutsideVideoError"):
        assert not items


def test_the_same_annotations_made_sound_give_items():
    """The cases above fail for what they name, not for something else in the set-up."""
    assert outcome("PR", **WHOLE)[0]
    assert outcome("IR", **WHOLE, instruments=rows((0, 5, "a"), (52, 60, "b")))[0]
    assert outcome("Site", lesions=[lesion("x", (5, 9), site="a")])[0]
    assert outcome("CPR", steps=rows((0, 9, "a"), (12, 13, "b")))[0]
    two = [lesion("x", (5, 9), site="a", size=7), lesion("y", (20, 30), site="b", size=9)]
    (item,) = outcome("LLS", lesions=two)[0]
    assert item.options["ABCD".index(item.answer)] == "b"
    together = [lesion("x", (5, 9), site="a"), lesion("y", (6, 12), site="b")]
    assert len(outcome("Site", lesions=together)[0]) == 2


def test_two_largest_lesions_in_one_place_are_no_tie():
    two = [lesion("x", (5, 9), site="a", size=7), lesion("y", (20, 30), site="a", size=7)]
    (item,) = outcome("LLS", lesions=two)[0]
    assert item.options["ABCD".index(item.answer)] == "a"
    assert [(w.start_seconds, w.end_seconds) for w in item.evidence.windows] == [(5, 9), (20, 30)]


def test_an_unmeasured_lesion_leaves_the_largest_unknown():
    two = [lesion("x", (5, 9), site="a", size=7), lesion("y", (20, 30), site="b")]
    items, reasons = outcome("LLS", lesions=two)
    assert (items, reasons) == ([], ["AnswerMissingError"])


def test_options_that_read_alike_are_dropped_as_such():
    """Two labels with one alias in a fixed option set; elsewhere the second is never offered."""
    steps = rows((0, 9, "a"), (10, 19, "b"), (20, 29, "c"))
    config = {"named_steps": 3, "aliases": {"b": "Sew", "c": "sew"}}
    items, reasons = outcome("RSR", steps=steps, config=config)
    assert (items, reasons) == ([], ["OptionsNotUniqueError"])
    (item,) = outcome("RSR", steps=steps, config={"named_steps": 3})[0]
    assert sorted(item.options) == ["a", "b", "c"]


def test_labels_that_look_like_option_letters_are_dropped():
    sites = {"sites": ["A. left", "B. right", "C. top", "D. bottom"]}
    seen = set()
    for seed in range(8):
        items, reasons = outcome(
            "Site", spaces=sites, lesions=[lesion("x", (5, 9), site="A. left")], config={"seed": seed}
        )
        seen |= set(reasons)
        for item in items:  # not in the order of their letters: kept as they are
            assert set(item.options) == set(sites["sites"])
    assert seen <= {"MalformedTextError"}


@pytest.mark.parametrize("task", ["WR", "RSR", "CPR", "IR"])
def test_a_dropped_row_silences_what_rests_on_the_whole_track(task):
    steps = rows(*((10 * n, 10 * n + 9 - n, ABCDE[n]) for n in range(5)))
    sound = {"phases": steps, "steps": steps, "instruments": steps}
    assert outcome(task, **sound)[0]
    bad = [*steps, {"start": 70, "end": 80, "label": "zebra"}]
    unknown = {"phases": bad, "steps": bad, "instruments": steps}
    items, reasons = outcome(task, **unknown)
    assert not items
    assert set(reasons) == {"DoubtfulAnnotationError"}


def test_a_dropped_row_silences_only_the_windows_it_touches():
    phases = rows((0, 30, "a"), (30, 60, "zebra"), (60, 100, "b"))
    items, reasons = outcome("PR", phases=phases, config={"windows_per_run": 30})
    assert items
    for item in items:
        (window,) = item.evidence.windows
        assert window.end_seconds <= 30 or window.start_seconds >= 60
    assert "DoubtfulAnnotationError" in reasons


def test_a_lesion_seen_beside_the_one_asked_about_is_no_wrong_option():
    two = [lesion("x", (5, 9), site="a"), lesion("y", (6, 12), site="b")]
    for item in outcome("Site", lesions=two)[0]:
        assert {"a", "b"} & set(item.options) == {item.options["ABCD".index(item.answer)]}
    apart = [lesion("x", (5, 9), site="a"), lesion("y", (16, 22), site="b")]
    for item in outcome("Site", lesions=apart)[0]:
        assert {"a", "b"} <= set(item.options), "the other lesion's place is the likeliest confusion"


@pytest.mark.parametrize(
    ("rule", "windows"),
    [("all", [(5, 9), (20, 40)]), ("first", [(5, 9)]), ("longest", [(20, 40)])],
)
def test_lesion_windows_are_chosen_by_the_rule(rule, windows):
    (item,) = outcome(
        "Site", lesions=[lesion("x", (20, 40), (5, 9), site="a")], config={"lesion_windows": rule}
    )[0]
    assert [(w.start_seconds, w.end_seconds) for w in item.evidence.windows] == windows
    assert item.evidence.kind == "proxy"


def test_a_part_covered_window_is_evidence_in_that_part_where_allowed():
    items, _ = outcome(
        "PR",
        phases=rows((40, 45, "a")),
        config={"window_seconds": 6, "min_coverage": 0.4, "windows_per_run": 5},
    )
    assert items
    for item in items:
        (window,) = item.evidence.windows
        assert window.start_seconds >= 40
        assert window.end_seconds <= 45


@pytest.mark.parametrize(("task", "enough"), [("RSR", 4), ("WR", 4)])
def test_too_few_labels_for_four_options_are_said_to_be_too_few(task, enough):
    for n in range(1, 6):
        tracks = rows(*((10 * k, 10 * k + 9 - k, ABCDE[k]) for k in range(n)))
        items, reasons = outcome(task, phases=tracks, steps=tracks, spaces={"phases": ABCDE[:n]})
        assert bool(items) == (n >= enough)
        assert reasons == ([] if n >= enough else ["LabelSpaceTooSmallError"])


def test_wording_and_aliases_are_the_persons_own():
    config = {
        "wording": {"PR": "From {start} to {end}, what is done?"},
        "aliases": {"a": "getting access"},
    }
    items, _ = outcome("PR", phases=rows((0, 100, "a")), config=config)
    assert items[0].question.startswith("From 0:0")
    assert items[0].options["ABCD".index(items[0].answer)] == "getting access"


@pytest.mark.parametrize(
    ("wording", "told"),
    [
        ({"PR": "What is done?"}, "must name"),
        ({"PR": "What is done from {start} to {stop}?"}, "may name"),
        ({"XX": "?"}, "XX"),
    ],
)
def test_a_wording_that_loses_its_subject_is_refused(wording, told):
    with pytest.raises(ValueError, match=told):
        Config(wording=wording)
