"""Each reason for which a candidate is dropped, brought about by the smallest annotation that has it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from diagnostics.data.build import Config, build_in_memory
from diagnostics.data.build.annotations import VideoFacts
from diagnostics.errors import ConfigError
from diagnostics.strict import from_mapping

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
    "NearBorderError": ("PR", {"phases": rows((0, 100, "a"))}, {"border_share": 0.49}),
    "NothingToCompareError": ("LLS", {"lesions": [lesion("x", (5, 9), site="a", size=7)]}, {}),
    "SubjectNotAskedError": (
        "Site",
        {"lesions": [lesion("x", (5, 9), site="a"), lesion("y", (20, 30), site="b")]},
        {"lesion_subjects": "only"},
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
    assert outcome("PR", phases=rows((0, 100, "a")))[0]
    assert outcome("Site", lesions=[lesion("x", (5, 9), site="a")], config={"lesion_subjects": "only"})[0]
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


def windows(item):
    return [(window.start_seconds, window.end_seconds) for window in item.evidence.windows]


STEPS = rows((0, 9, "a"), (9, 12, "a"), (20, 29, "b"), (40, 49, "a"), (60, 69, "c"), (80, 89, "b"))


def test_exact_steps_are_windows_of_what_the_question_names():
    """Of RSR the first time of each named step, rows that touch joined; of CPR every time of the one."""
    first = {"a": (0, 12), "b": (20, 29), "c": (60, 69)}
    items, _ = outcome("RSR", steps=STEPS, config={"named_steps": 2, "draws": 9, "kinds": {"RSR": "exact"}})
    assert len(items) == 2
    for item in items:
        assert item.evidence.kind == "exact"
        assert windows(item) == sorted(first[label] for label in item.options)
    items, _ = outcome("CPR", steps=STEPS, config={"draws": 9, "kinds": {"CPR": "exact"}})
    told = {item.metadata["subject"]["step"]: windows(item) for item in items}
    assert told == {"a": [(0, 12), (40, 49)], "b": [(20, 29), (80, 89)], "c": [(60, 69)]}
    assert all(item.evidence.kind == "exact" for item in items)
    for task in ("RSR", "CPR"):  # the paper's rule: the whole video
        for item in outcome(task, steps=STEPS, config={"named_steps": 2})[0]:
            assert (item.evidence.kind, item.evidence.windows) == ("global", ())


def test_a_kind_changes_what_windows_are_worth_and_not_where_they_are():
    seen = [lesion("x", (5, 9), site="a", size=7), lesion("y", (20, 30), site="b", size=9)]
    for task, kind in (("Site", "exact"), ("LLS", "exact"), ("LA", "exact"), ("LLS", "global")):
        usual, _ = outcome(task, lesions=seen)
        items, _ = outcome(task, lesions=seen, config={"kinds": {task: kind}})
        assert [item.question for item in items] == [item.question for item in usual]
        assert {item.evidence.kind for item in items} == {kind}
        assert {item.evidence.kind for item in usual} == {"proxy"}
        if kind != "global":
            assert list(map(windows, items)) == list(map(windows, usual))


@pytest.mark.parametrize(
    ("kinds", "told"),
    [
        ({"WR": "exact"}, "WR cannot be exact.*all phases"),
        ({"BPQ": "proxy"}, "BPQ cannot be proxy"),
        ({"PR": "global"}, "PR cannot be global"),
        ({"Site": "global"}, "Site cannot be global"),
        ({"Sight": "exact"}, "Did you mean 'Site'"),
        ({"RSR": "sharp"}, "kinds.RSR"),
    ],
)
def test_a_kind_that_a_task_cannot_have_is_refused_by_name(kinds, told):
    with pytest.raises(ConfigError, match=told):
        from_mapping(Config, {"kinds": kinds}, "build")


def test_a_step_that_no_frame_shows_is_no_exact_evidence():
    """Every named thing must be seen; where the whole video is the evidence nothing is asked of frames."""
    hidden = rows((0, 9, "a"), (20.01, 20.05, "b"))
    for task, config in (("RSR", {"named_steps": 2}), ("CPR", {"draws": 9})):
        items, reasons = outcome(task, steps=hidden, config=config | {"kinds": {task: "exact"}})
        assert reasons == ["NoFrameError"]
        assert len(items) == (1 if task == "CPR" else 0)
        assert len(outcome(task, steps=hidden, config=config)[0]) == (2 if task == "CPR" else 1)


def test_windows_keep_their_distance_from_borders():
    for share in (0.0, 0.2, 0.4):
        items, _ = outcome(
            "PR",
            phases=rows((0, 40, "a"), (40, 100, "b")),
            config={"window_seconds": 5, "windows_per_run": 60, "border_share": share},
        )
        nearest = {}
        for item in items:
            ((start, end),) = windows(item)
            run = (0, 40) if end <= 40 else (40, 100)
            left = min(start - run[0], run[1] - end) / (run[1] - run[0])
            nearest[run] = min(left, nearest.get(run, 1.0))
        assert set(nearest) == {(0, 40), (40, 100)}
        assert all(share <= left < share + 0.1 for left in nearest.values()), nearest


def test_whole_onset_evidence_is_the_stretch_of_use():
    """Rows that touch are one stretch; a later use of the same instrument is not in it."""
    used = rows((48, 53, "a"), (53, 70, "a"), (80, 90, "a"))
    tracks = {"phases": rows((0, 50, "a"), (50, 100, "b")), "instruments": used}
    for how, expected in (("inside", [(50, 53), (53, 55)]), ("whole", [(48, 70)])):
        items, _ = outcome("IR", **tracks, config={"onset_seconds": 5, "onset_evidence": how})
        assert [windows(item) for item in items] == [expected]


def test_a_question_that_names_an_order_is_order_dependent():
    two = [lesion("x", (5, 9), site="a"), lesion("y", (20, 30), site="b")]
    assert [item.flags for item in outcome("Site", lesions=two)[0]] == [{"order_dependent"}] * 2
    assert [item.flags for item in outcome("Site", lesions=two[:1])[0]] == [{"order_free"}]
    used = {"instruments": rows((0, 5, "a"), (52, 60, "b"))}
    once, again = rows((0, 50, "a"), (50, 100, "b")), rows((0, 50, "a"), (50, 70, "b"), (70, 100, "a"))
    assert {item.flags for item in outcome("IR", phases=once, **used)[0]} == {frozenset({"order_free"})}
    flags = {item.metadata["subject"]["phase"]: item.flags for item in outcome("IR", phases=again, **used)[0]}
    assert flags == {"a": {"order_dependent"}, "b": {"order_free"}}
