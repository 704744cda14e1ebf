"""The matcher on made-up sources: each rule's windows worked out by hand, each refusal by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnostics.data.build.annotations import Interval, Lesion, Place, Track
from diagnostics.data.items import Item
from diagnostics.data.sources import all_sources
from diagnostics.data.sources._source import Annotated, Clip, Source
from diagnostics.data.sources.archives import Archive, find_archives
from diagnostics.data.sources.matching import Derived, Matcher, Rules, style_of
from diagnostics.data.sources.sidecar import audit_row, audit_table, sidecar_row
from diagnostics.errors import ConfigError, DataFileError

FPS, SECONDS = 25.0, 400.0
OPTIONS = ("Cutting", "Washing", "Suturing", "Waiting")


def track(*rows: tuple[float, float, str], doubts: tuple[tuple[float, float], ...] = ()) -> Track:
    return Track(tuple(Interval(start, end, label, Place("f")) for start, end, label in rows), doubts)


def lesion(name: str, *spans: tuple[float, float]) -> Lesion:
    return Lesion(name, tuple(Interval(start, end, name, Place("f")) for start, end in spans), {})


class Made(Source):
    """A source whose annotations are given; with a layout of empty `<stem>.txt` files."""

    def __init__(self, name: str, annotated: Mapping[str, Annotated], stems: str = "") -> None:
        self.name, self.datasets, self.aliases = name, (name,), {"phases": {"rinsing": "Washing"}}
        self.annotated, self.stems, self.reads = annotated, stems, 0

    def stem(self, video: str) -> str | None:
        return video if video.startswith(self.stems) else None

    def find(self, root: Path) -> Mapping[str, tuple[Path, ...]]:
        return {stem: (root / f"{stem}.txt",) for stem in self.annotated}

    def read(self, root: Path, stem: str, clip: Clip | None = None) -> Annotated:
        self.reads += 1
        if stem == "torn":
            raise DataFileError("Line 3 is torn.", remedy="Download it again.", path=root / "torn.txt")
        return self.annotated[stem]


SURGERY = Annotated(
    source="Made",
    stem="v1",
    base="seconds",
    time_base="seconds",
    tracks={
        "phases": track(
            (0, 100, "Cutting"), (100, 200, "Washing"), (200, 300, "Suturing"), (320, 400, "Cutting")
        ),
        "steps": track((0, 50, "Cutting"), (60, 90, "Washing"), doubts=((90, 95),)),
        "instruments": track((98, 103, "Knife"), (104, 106, "Hook"), (107, 140, "Knife"), (205, 206, "Hook")),
    },
    seconds=SECONDS,
)


def item(
    task: str, question: str, *, answer: str | None = "A", options: tuple[str, ...] = OPTIONS, **told
) -> Item:
    video = told.pop("video", "made/v1.mp4")
    told = {"dataset": "made", "fps": FPS, "duration_seconds": SECONDS, "num_frames": 10_000, **told}
    return Item(
        "v1/0", Path("/x") / video, video, question, options, answer, task, metadata={"task_id": task, **told}
    )


def derive(one: Item, annotated: Annotated = SURGERY, **rules) -> Derived:
    archives = {
        "made": Archive("made", Made("Made", {"v1": annotated, "torn": annotated}), Path("/sources/made"))
    }
    return Matcher(archives, Rules(**rules)).derive(one)


def test_a_window_inside_a_run_is_the_evidence() -> None:
    told = derive(item("PR", "Which phase is under way between 120 s and 130.5 s?"))
    assert told.kind == "exact"
    assert told.seconds == ((120.0, 130.5),)
    assert told.frames == ((3000, 3263),)  # 130.5 * 25 = 3262.5: a half goes up
    assert (told.source, told.stem, told.counted) == ("Made", "v1", "exact")


def test_the_run_cuts_the_window_and_a_gap_is_no_evidence() -> None:
    told = derive(
        item("PR", "Which phase is under way between 290 s and 330 s?", options=("Suturing", "Waiting"))
    )
    assert told.kind == "exact"
    assert told.seconds == ((290.0, 300.0),)  # the next label, from 320 on, is no option
    assert any(warning.startswith("cut by a border") for warning in told.warnings)


def test_two_options_in_the_window_are_both_shown_and_only_approximate() -> None:
    told = derive(item("PR", "Which phase is under way between 290 s and 330 s?"))
    assert told.kind == "approx"
    assert told.seconds == ((290.0, 300.0), (320.0, 330.0))


def test_options_that_the_source_does_not_show_there_are_told() -> None:
    told = derive(
        item("PR", "Which phase is under way between 120 s and 130 s?", options=("Waiting", "Suturing"))
    )
    assert told.kind == "approx"
    assert told.seconds == ((120.0, 130.0),)
    assert any(warning.startswith("options elsewhere") for warning in told.warnings)


def test_an_alias_is_the_label() -> None:
    told = derive(item("PR", "Which phase is it from 190 s to 210 s?", options=("Rinsing", "Waiting")))
    assert (told.kind, told.seconds) == ("exact", ((190.0, 200.0),))


def test_a_dropped_row_leaves_doubt() -> None:
    assert derive(item("SD", "Which step is done between 60 s and 70 s?")).kind == "exact"
    assert derive(item("SD", "Which step is done between 80 s and 92 s?")).kind == "approx"


def test_nothing_labelled_in_the_window_is_missing_unless_the_window_alone_is_wanted() -> None:
    question = item("PR", "Which phase is under way between 305 s and 310 s?")
    told = derive(question)
    assert (told.kind, told.reason_kind, told.frames) == ("missing", "nothing labelled", ())
    alone = derive(question, window_alone=True)
    assert (alone.kind, alone.rule, alone.seconds) == ("approx", "window", ((305.0, 310.0),))
    assert any("labels no phase in the window" in warning for warning in alone.warnings)
    onset = item("IR", "Which instrument is used at the start of Cutting?", options=("Hook",))
    assert derive(onset, window_alone=True).reason_kind == "nothing labelled"  # it names no window to fail at


@pytest.mark.parametrize("answer", ["A", "B", "C"])
def test_only_label_runs_look_at_the_answer(answer: str) -> None:
    read = item("PR", "Which phase is under way between 290 s and 330 s?", answer=answer)
    assert derive(read).frames == derive(replace(read, answer="D")).frames
    unread = derive(item("PR", "Which phase is the one with the red cloth?", answer=answer))
    assert unread.kind == "label-run"
    expected = {"A": ((0.0, 100.0), (320.0, 400.0)), "B": ((100.0, 200.0),), "C": ((200.0, 300.0),)}
    assert unread.seconds == expected[answer]
    assert any(warning.startswith("window unread") for warning in unread.warnings)


def test_an_unread_window_without_label_runs_is_missing() -> None:
    unread = item("PR", "Which phase is the one with the red cloth?")
    assert derive(unread, label_runs=False).reason_kind == "window unread"
    strange = derive(replace(unread, answer="D"))
    assert strange.reason_kind == "gold label unknown"
    assert any(warning.startswith("window unread") for warning in strange.warnings)  # still counted
    assert derive(replace(unread, answer=None)).reason_kind == "gold label unknown"


def test_instruments_count_from_the_named_phases_onset() -> None:
    asked = item("IR", "Which instrument is used when Washing begins?", options=("Knife", "Scissors"))
    told = derive(asked)
    assert (told.kind, told.seconds) == ("exact", ((100.0, 103.0), (107.0, 110.0)))
    assert derive(asked, onset_seconds=5.0).seconds == ((100.0, 103.0),)
    both = derive(replace(asked, options=("Knife", "Hook")))
    assert (both.kind, both.seconds) == ("approx", ((100.0, 103.0), (104.0, 106.0), (107.0, 110.0)))
    recurring = derive(item("IR", "Which instrument is used at the start of Suturing?", options=("Hook",)))
    assert recurring.seconds == ((205.0, 206.0),)
    gone = derive(item("IR", "Which instrument is used at the start of Cutting?", options=("Hook",)))
    assert gone.reason_kind == "nothing labelled"


def test_instruments_labelled_at_distant_moments_are_approximate() -> None:
    sparse = replace(
        SURGERY,
        tracks={
            **SURGERY.tracks,
            "instruments": track((95, 96, "Hook"), (130, 131, "Knife"), (165, 166, "Hook")),
        },
        spacing={"instruments": 35.0},
    )
    told = derive(
        item("IR", "Which instrument is used when Washing begins?", options=("Knife", "Hook")), sparse
    )
    assert (told.kind, told.seconds) == ("approx", ((130.0, 131.0),))
    assert any(warning.startswith("sparse") for warning in told.warnings)


@pytest.mark.parametrize(
    "words",
    [
        "before Washing begins",
        "in the last 10 seconds of Washing",
        "as Washing ends",
        "after Washing",
        "in the middle of Washing",
        "in the first 10% of Washing",
        "in the second half of Washing",
        "when the phase after Washing begins",
        "when Washing begins for the second time",
        "2 minutes after Washing begins",
        "at 3:30 in Washing",
        "in Washing between 205 and 206",
    ],
)
def test_another_moment_than_the_onset_is_not_taken_for_it(words: str) -> None:
    asked = item("IR", f"Which instrument is used {words}?", options=("Knife", "Hook"))
    told = derive(asked, label_runs=False)
    assert told.kind == "missing"
    assert told.reason_kind in ("subject unread", "window unread")
    assert derive(asked).kind in ("missing", "label-run")


@pytest.mark.parametrize(
    ("words", "end"),
    [
        ("in the first 5 seconds of Washing", 105.0),
        ("in the 5 seconds after Washing begins", 105.0),
        ("within 20 seconds after the onset of Washing", 120.0),
        ("right after Washing begins", 110.0),
        ("in the Washing phase", 110.0),
    ],
)
def test_a_length_after_the_onset_is_the_questions_own(words: str, end: float) -> None:
    asked = item("IR", f"Which of the following instruments is used {words}?", options=("Knife", "Saw"))
    knife = ((100.0, 103.0), (107.0, end)) if end > 107 else ((100.0, 103.0),)
    told = derive(asked)
    assert (told.kind, told.seconds) == ("exact", knife)
    assert f"in the {end - 100:g} s after" in told.rule


def test_an_onset_that_may_have_been_dropped_is_in_doubt() -> None:
    phases = track((100, 200, "Washing"), doubts=((40, 60),))
    told = derive(
        item("IR", "Which instrument is used when Washing begins?", options=("Knife",)),
        replace(SURGERY, tracks={**SURGERY.tracks, "phases": phases}),
    )
    assert (told.kind, told.seconds) == ("approx", ((100.0, 103.0), (107.0, 110.0)))
    assert any(warning.startswith("in doubt") for warning in told.warnings)


@settings(max_examples=60, deadline=None)
@given(
    cuts=st.lists(st.integers(1, 3999), min_size=2, max_size=12, unique=True),
    window=st.tuples(st.integers(0, 3990), st.integers(1, 600)),
    shown=st.sets(st.sampled_from(OPTIONS), min_size=1),
)
def test_windows_lie_in_the_video_in_order_and_in_what_was_asked(
    cuts: list[int], window: tuple[int, int], shown: set[str]
) -> None:
    """Every tenth of a second of the evidence against the labels themselves."""
    edges = [0, *sorted(cuts), 4000]
    labels = [OPTIONS[place % 4] for place in range(len(edges) - 1)]
    rows = [(low / 10, high / 10, label) for low, high, label in zip(edges, edges[1:], labels, strict=False)]
    start, end = window[0], min(window[0] + window[1], 4000)
    asked = item(
        "PR", f"Which phase is it between {start / 10} s and {end / 10} s?", options=tuple(sorted(shown))
    )
    told = derive(asked, replace(SURGERY, tracks={"phases": track(*rows)}))
    at = [
        next(label for low, high, label in rows if low * 10 <= tick < high * 10) for tick in range(start, end)
    ]
    wanted = {tick for tick, label in zip(range(start, end), at, strict=True) if label in shown}
    wanted = wanted or set(range(start, end))
    inside = {
        round(low * 10) + step for low, high in told.seconds for step in range(round((high - low) * 10))
    }
    assert inside == wanted
    assert told.kind == ("exact" if len(shown & set(at)) == 1 else "approx")
    flat = [edge for pair in told.frames for edge in pair]
    assert flat == sorted(flat)
    assert flat[0] >= 0
    assert flat[-1] <= 10_000
    assert all(first < last for first, last in told.frames)
    for (first, last), (low, high) in zip(told.frames, told.seconds, strict=True):
        assert abs(first / FPS - low) <= 0.5 / FPS + 1e-9
        assert abs(last / FPS - high) <= 0.5 / FPS + 1e-9


LESIONS = Annotated(
    source="Made",
    stem="v1",
    base="frames",
    time_base="frames",
    lesions=(lesion("v1_1", (1000, 1100), (1200, 1700)), lesion("v1_2", (1600, 1800))),
    n_frames=10_000,
)


@pytest.mark.parametrize(
    ("how", "frames"),
    [("all", ((1000, 1100), (1200, 1700))), ("longest", ((1200, 1700),)), ("first", ((1000, 1075),))],
)
def test_a_lesion_is_taken_in_three_ways_and_all_are_told(how: str, frames: tuple) -> None:
    told = derive(item("Site", "Where is lesion v1_1?"), LESIONS, lesion_windows=how, first_seconds=3.0)
    assert (told.kind, told.frames) == ("proxy", frames)
    assert told.seconds == tuple((first / FPS, end / FPS) for first, end in frames)
    assert told.alternatives == {
        "all": ((1000, 1100), (1200, 1700)),
        "longest": ((1200, 1700),),
        "first": ((1000, 1075),),
    }
    assert sidecar_row(told)["alternatives"]["first"] == [[1000, 1075]]


def test_a_window_in_the_question_narrows_its_lesion() -> None:
    told = derive(item("Site", "Where is the lesion seen between 38 s and 50 s?"), LESIONS)
    assert (told.kind, told.frames) == ("proxy", ((1000, 1100), (1200, 1250)))  # lesion 2 appears at 64 s
    assert told.alternatives["window"] == told.frames
    assert told.alternatives["all"] == ((1000, 1100), (1200, 1700))
    elsewhere = derive(item("Site", "Where is lesion v1_2, between 38 s and 50 s?"), LESIONS)
    assert elsewhere.frames == ((1600, 1800),)
    assert any(warning.startswith("not in the window") for warning in elsewhere.warnings)


def test_a_lesion_that_is_boxed_nowhere_is_still_one_of_several() -> None:
    one = replace(LESIONS, lesions=LESIONS.lesions[:1])
    assert derive(item("Site", "Where is the lesion?"), one).kind == "proxy"
    two = replace(one, unseen=("v1_2",))
    assert derive(item("Site", "Where is the lesion?"), two).reason_kind == "subject unread"
    assert derive(item("Site", "Where is lesion v1_1?"), two).kind == "proxy"


@pytest.mark.parametrize("words", ["Between 100 s and 50 s", "Between 500 s and 510 s"])
def test_a_window_that_is_named_and_cannot_be_is_no_onset(words: str) -> None:
    asked = f"{words}, which instrument is used when Washing begins?"
    told = derive(item("IR", asked, options=("Knife", "Hook")))
    assert told.kind == "label-run"
    assert any(warning.startswith("window unread") for warning in told.warnings)


def test_all_lesions_together_are_counted_apart() -> None:
    told = derive(item("LA", "How many lesions are there?"), LESIONS)
    assert (told.kind, told.counted, told.frames) == ("proxy", "excluded", ((1000, 1100), (1200, 1800)))
    unnamed = derive(item("Size", "How large is it?"), LESIONS)
    assert (unnamed.kind, unnamed.reason_kind) == ("missing", "subject unread")


def test_frames_stay_frames_and_seconds_of_the_window_become_frames() -> None:
    capsule = replace(
        LESIONS, lesions=(), tracks={"regions": track((0, 4000, "Cutting"), (4000, 10_000, "Washing"))}
    )
    told = derive(
        item("RL", "Which region is seen between 158 s and 161.02 s?", options=("Washing",)), capsule
    )
    assert told.frames == ((4000, 4026),)  # 161.02 * 25 = 4025.5
    assert told.seconds == ((160.0, 161.04),)


def test_windows_shorter_than_a_frame_are_the_frame_they_are_seen_in() -> None:
    capsule = replace(LESIONS, lesions=(), tracks={"regions": track((0, 400, "Cutting"))}, n_frames=400)
    slow = {"fps": 1.0, "num_frames": 400}
    told = derive(item("RL", "Which region is seen between 5.6 s and 6.4 s?", **slow), capsule)
    assert told.frames == ((6, 7),)
    rows = track((10, 10.02, "Cutting"), (10.02, 10.03, "Washing"), (10.03, 10.5, "Cutting"))
    told = derive(item("PR", "Which one?", **slow), replace(SURGERY, tracks={"phases": rows}))
    assert (told.frames, told.seconds) == (((10, 11),), ((10.0, 10.5),))
    rows = track((0, 120.0003, "Cutting"), (120.0003, 400.2, "Washing"), (400.2, 400.8, "Suturing"))
    odd = replace(SURGERY, tracks={"phases": rows}, seconds=401.0)
    for question, answer in (("Which phase is it between 120 s and 130 s?", "A"), ("Which one?", "C")):
        row = sidecar_row(
            derive(
                item("PR", question, answer=answer, options=OPTIONS[::2] + OPTIONS[2:3], num_frames=10_025),
                odd,
            )
        )
        assert all(start < end for start, end in row["seconds"]), row


def test_a_record_at_odds_with_itself_is_refused() -> None:
    told = derive(item("PR", "Which phase is under way between 120 s and 130 s?", fps=30.0))
    assert told.reason_kind == "durations disagree"
    assert "10000 frames at 30 a second are not its 400 s" in told.reason


def test_a_clock_that_only_the_other_questions_explain_is_told() -> None:
    long = {"duration_seconds": 40_000.0, "num_frames": 1_000_000}
    asked = item("PR", "Which phase is it between 2:10 and 2:20?", **long)
    phases = replace(SURGERY, tracks={"phases": track((0, 40_000, "Cutting"))}, seconds=40_000.0)
    archive = Archive("made", Made("Made", {"v1": phases}), Path("/sources/made"))
    told = Matcher({"made": archive}, Rules(label_runs=False), "m:ss").derive(asked)
    assert told.seconds == ((130.0, 140.0),)
    assert any(warning.startswith("clock by style") for warning in told.warnings)
    assert Matcher({"made": archive}, Rules(label_runs=False)).derive(asked).reason_kind == "window unread"


def test_whole_video_questions_tell_where_the_labels_they_name_are() -> None:
    asked = item("WR", "Which phase takes longest?", options=("Rinsing, then Suturing", "Waiting"))
    told = derive(asked)
    assert (told.kind, told.frames) == ("global", ())
    assert told.targeted == {"phases": {"Washing": ((2500, 5000),), "Suturing": ((5000, 7500),)}}
    assert audit_row(told)["targeted"]["phases"]["Washing"] == [[2500, 5000]]
    assert "targeted" not in sidecar_row(told)
    assert not derive(asked, replace(SURGERY, seconds=500.0)).targeted


@pytest.mark.parametrize("task", ["WR", "RSR", "CPR", "BPQ"])
def test_whole_video_questions_are_global_also_without_labels(task: str) -> None:
    told = derive(item(task, "How well was it prepared?", video="made/none.mp4"))
    assert (told.kind, told.frames, told.counted) == ("global", (), "excluded")
    assert any(warning.startswith("labels not read") for warning in told.warnings)
    assert "seconds" not in sidecar_row(told)


def test_us_study_is_global_whatever_its_tasks_are_called() -> None:
    told = derive(item("PR", "Is there a contraction between 10 s and 20 s?", dataset="us_study"))
    assert told.kind == "global"


@pytest.mark.parametrize(
    ("changed", "refused"),
    [
        ({"seconds": 402.0}, False),
        ({"seconds": 402.1}, True),
        ({"seconds": 397.9}, True),
        ({"seconds": 300.0, "whole": False}, False),
        ({"seconds": 270.0, "whole": False}, True),
        ({"seconds": 403.0, "whole": False}, True),
        ({"seconds": None}, False),
    ],
)
def test_another_length_is_refused_by_name(changed: dict, refused: bool) -> None:
    told = derive(item("PR", "Which phase is under way between 20 s and 30 s?"), replace(SURGERY, **changed))
    assert told.kind == ("missing" if refused else "exact")
    assert told.reason_kind == ("durations disagree" if refused else "")
    if refused:
        assert "400 s" in told.reason


def test_another_number_of_frames_is_refused_or_told() -> None:
    asked = item("Hist", "What is lesion v1_1?")
    assert derive(asked, replace(LESIONS, n_frames=10_051)).reason_kind == "durations disagree"
    near = derive(asked, replace(LESIONS, n_frames=10_050))
    assert near.kind == "proxy"
    assert any(warning.startswith("frame counts differ") for warning in near.warnings)


def test_what_leaves_the_video_is_clipped_or_named() -> None:
    longer = replace(SURGERY, tracks={"phases": track((0, 401, "Cutting"))}, seconds=401.0)
    told = derive(item("PR", "Which one has the red cloth?"), longer)
    assert (told.seconds, told.frames) == (((0.0, 400.0),), ((0, 10_000),))
    outside = derive(
        item("Site", "Where is lesion v1_1?"), replace(LESIONS, lesions=(lesion("v1_1", (10_010, 10_020)),))
    )
    assert outside.kind == "missing"
    assert any(warning.startswith("outside") for warning in outside.warnings)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"fps": None}, "record incomplete"),
        ({"num_frames": 0}, "record incomplete"),
        ({"num_frames": 10**400}, "record incomplete"),
        ({"dataset": "elsewhere", "video": "elsewhere/x.mp4"}, "not annotated"),
        ({"video": "made/v9.mp4"}, "not annotated"),
        ({"video": "made/torn.mp4"}, "source unreadable"),
    ],
)
def test_what_cannot_be_matched_is_missing_with_its_reason(changes: dict, reason: str) -> None:
    told = derive(item("PR", "Which phase is under way between 20 s and 30 s?", **changes))
    assert (told.kind, told.reason_kind) == ("missing", reason)
    assert told.reason


def test_two_sources_that_claim_one_video_are_both_named() -> None:
    archives = {
        name: Archive(name, Made(name, {"v1": SURGERY}, stems), Path("/sources"))
        for name, stems in (("first", "v"), ("second", "v"), ("third", "w"))
    }
    matcher = Matcher(archives, Rules())
    asked = item("PR", "Which phase is under way between 20 s and 30 s?", dataset="?")
    told = matcher.derive(asked)
    assert told.reason_kind == "ambiguous source"
    assert "first and second" in told.reason
    named = matcher.derive(replace(asked, metadata={**asked.metadata, "dataset": "Second"}))
    assert (named.source, named.kind) == ("second", "exact")
    assert not any(warning.startswith("by the video's path") for warning in named.warnings)
    folder = matcher.derive(replace(asked, video_id="videos/SECOND/v1.mp4"))
    assert (folder.source, folder.kind) == ("second", "exact")
    assert any(warning.startswith("by the video's path") for warning in folder.warnings)
    nobody = matcher.derive(replace(asked, video_id="made/u1.mp4"))
    assert nobody.reason_kind == "source unknown"


def test_a_missing_folder_costs_its_own_items_only(tmp_path: Path) -> None:
    sources = {"here": Made("Here", {"v1": SURGERY}), "gone": Made("Gone", {}), "twice": Made("Twice", {})}
    for name in ("HERE", "twice", "Twice "):
        (tmp_path / name).mkdir()
    archives = find_archives(sources, tmp_path, {})
    assert archives["here"].folder == tmp_path / "HERE"
    matcher = Matcher(archives, Rules())
    question = "Which phase is under way between 20 s and 30 s?"
    kinds = {name: matcher.derive(item("PR", question, dataset=name)) for name in sources}
    assert [told.kind for told in kinds.values()] == ["exact", "missing", "missing"]
    assert kinds["gone"].reason_kind == kinds["twice"].reason_kind == "no source folder"
    assert "Twice " in kinds["twice"].reason


def test_a_link_to_nothing_costs_its_own_items_only(tmp_path: Path) -> None:
    """As archives of git-annex leave them."""
    (tmp_path / "label_01.txt").symlink_to(tmp_path / "gone")
    matcher = Matcher({"autolaparo": Archive("autolaparo", all_sources()["autolaparo"], tmp_path)}, Rules())
    asked = item("PR", "Which phase is under way between 20 s and 30 s?", dataset="AutoLaparo")
    told = matcher.derive(replace(asked, video_id="autolaparo/01.mp4"))
    assert (told.kind, told.reason_kind) == ("missing", "source unreadable")
    assert "No such file or directory" in told.reason
    assert str(tmp_path / "label_01.txt") in told.reason


def test_folders_that_are_named_must_be_there(tmp_path: Path) -> None:
    sources = {"here": Made("Here", {})}
    with pytest.raises(DataFileError, match="none of the sources"):
        find_archives(sources, tmp_path, {})
    with pytest.raises(DataFileError, match="no such folder of Here"):
        find_archives(sources, None, {"here": str(tmp_path / "x")})
    with pytest.raises(ConfigError, match=r"no source 'hre'.*Did you mean 'here'"):
        find_archives(sources, tmp_path, {"hre": str(tmp_path)})
    with pytest.raises(ConfigError, match="Nothing says"):
        find_archives(sources, None, {"here": None})
    assert find_archives(sources, None, {"here": str(tmp_path)})["here"].folder == tmp_path


def test_a_video_is_read_once() -> None:
    source = Made("Made", {"v1": SURGERY})
    matcher = Matcher({"made": Archive("made", source, Path("/sources"))}, Rules())
    for start in (20, 30, 40):
        matcher.derive(item("PR", f"Which phase is under way between {start} s and {start + 5} s?"))
    assert source.reads == 1


def test_the_questions_together_tell_how_clocks_are_written() -> None:
    told = [
        item("PR", f"Which phase is under way between {clock}?")
        for clock in ("2:10 and 2:20", "1:10 and 1:20")
    ]
    assert style_of(told) == "m:ss"
    assert style_of([item("CPR", "Between 2:10 and 2:20?")]) is None


def test_the_audit_says_where_everything_comes_from() -> None:
    told = derive(item("PR", "Which phase is under way between 290 s and 330 s?"))
    row = audit_row(told)
    assert row["frames"] == [[7250, 7500], [8000, 8250]]
    table = audit_table([row, audit_row(derive(item("WR", "Longest?")))])
    assert list(table["n_evidence_frames"]) == [500, 0]
    assert table["seconds"][0] == "[[290.0, 300.0], [320.0, 330.0]]"


def test_the_readers_are_found_by_their_modules() -> None:
    names = set(all_sources())
    assert names == {
        "autolaparo",
        "galar",
        "grasp",
        "multibypass140",
        "pitvis",
        "real_colon",
        "tmvp",
        "us_study",
    }
    assert all(isinstance(source, Source) for source in all_sources().values())
