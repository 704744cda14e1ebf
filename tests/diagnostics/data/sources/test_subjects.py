"""Which lesion and which phase a question names."""

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnostics.data.build.annotations import Interval, Lesion, Place
from diagnostics.data.build.findings import ordinal
from diagnostics.data.sources import autolaparo, grasp, multibypass140, pitvis, tmvp
from diagnostics.data.sources.subjects import read_lesion, read_phase
from diagnostics.data.sources.windows import Unread


def lesion(name, *spans):
    return Lesion(name, tuple(Interval(*span, name, Place("boxes")) for span in spans), {})


# By appearance: _1, _3, _2; the id's number and the order agree for the first only.
THREE = (
    lesion("001-002_1", (10, 20)),
    lesion("001-002_2", (80, 90)),
    lesion("001-002_3", (40, 50), (200, 210)),
)
# Here they agree.
TWO = (lesion("001-005_1", (10, 20)), lesion("001-005_2", (40, 50)))
ONE = (lesion("001-004_1", (10, 20)),)
TWINS = (lesion("a", (10, 20)), lesion("b", (10, 30)), lesion("c", (50, 60)))


def named(question, lesions, window=None, unseen=()):
    result = read_lesion(question, lesions, window, unseen)
    return result.why if isinstance(result, Unread) else result.name


@pytest.mark.parametrize(
    ("question", "lesions", "expected"),
    [
        ("Where is lesion 001-002_3?", THREE, "001-002_3"),
        ("What is the histology of the polyp (ID 001-002_2)?", THREE, "001-002_2"),
        ("Is 001-002_1 larger than 001-002_2?", THREE, "several"),
        ("Where is lesion 001-002_4?", THREE, "unknown"),
        ("Where is lesion 001-002_33?", THREE, "unknown"),
        ("Where is the first lesion to come into view?", THREE, "001-002_1"),
        ("Where is the second lesion to come into view?", THREE, "001-002_3"),
        ("How large is the third lesion that appears?", THREE, "001-002_2"),
        ("How large is the 3rd detected polyp?", THREE, "001-002_2"),
        ("What is the site of the last lesion?", THREE, "001-002_2"),
        ("Where is the second lesion?", THREE, "ambiguous"),
        ("Where is lesion 2?", THREE, "ambiguous"),
        ("Where is lesion 1?", THREE, "001-002_1"),
        ("Where is lesion #2?", TWO, "001-005_2"),
        ("Where is polyp number two?", TWO, "001-005_2"),
        ("Where is the second polyp in the video?", TWO, "001-005_2"),
        ("Where is Lesion-2?", TWO, "001-005_2"),
        ("Where is lesion 3?", TWO, "unknown"),
        ("Where is the third lesion to be seen?", TWO, "unknown"),
        ("How large is the second lesion to be resected?", TWO, "unclear"),
        ("How large is the second lesion in the ascending colon?", TWO, "unclear"),
        ("Where is the second largest lesion?", TWO, "unclear"),
        ("Where is the largest lesion?", TWO, "unclear"),
        ("Where is the lesion?", TWO, "none"),
        ("Where is the only lesion?", TWO, "unknown"),
        ("Where is the lesion?", ONE, "001-004_1"),
        ("How large is the only polyp: 5 to 10 mm?", ONE, "001-004_1"),
        ("Where is the second lesion?", ONE, "unknown"),
        ("Where is the lesion?", (), "unknown"),
        ("Where is the first lesion to come into view?", TWINS, "ambiguous"),
        ("Where is the third lesion to come into view?", TWINS, "c"),
        ("Where is lesion 3?", TWINS, "c"),
        ("Is the first lesion or the second lesion flat?", TWO, "several"),
        ("Is lesion 2, the second lesion to come into view, flat?", TWO, "001-005_2"),
        ("Which is the second option for the 5 mm lesion?", TWO, "none"),
    ],
)
def test_lesions(question, lesions, expected):
    assert named(question, lesions) == expected


def test_a_window_names_the_lesion_that_is_visible_in_it():
    question = "How large is the lesion?"
    assert named(question, THREE, (41, 44)) == "001-002_3"
    assert named(question, THREE, (15, 45)) == "several"
    assert named(question, THREE, (300, 310)) == "unknown"
    assert named("How large is the first lesion to come into view?", THREE, (41, 44)) == "001-002_1"


def test_beside_a_lesion_that_is_not_shown_another_is_not_the_only_one():
    unseen = ("001-004_2",)
    assert named("Where is the lesion?", ONE, unseen=unseen) == "none"
    assert named("Where is the only lesion?", ONE, unseen=unseen) == "unknown"
    assert named("Where is lesion 001-004_2?", ONE, unseen=unseen) == "unknown"
    assert named("Where is lesion 2?", ONE, unseen=unseen) == "unknown"
    assert named("Where is lesion 001-004_1?", ONE, unseen=unseen) == "001-004_1"
    assert named("Where is the first lesion to come into view?", ONE, unseen=unseen) == "001-004_1"


@given(st.permutations(range(8)), st.integers(0, 7))
@settings(max_examples=60, deadline=None)
def test_the_order_of_the_list_does_not_matter(order, place):
    lesions = [lesion(f"{letter}x", (10.0 * n, 10.0 * n + 5)) for n, letter in enumerate("abcdefgh")]
    shuffled = [lesions[n] for n in order]
    question = f"What is the histology of the {ordinal(place + 1)} lesion to come into view?"
    assert named(question, shuffled) == lesions[place].name


# -- phases

SOURCE = SimpleNamespace(
    aliases={
        "phases": {
            "left lymph nodes": "LPIL",
            "lymph nodes": "Nodes",
            "bladder neck": "Neck",
            "the reconstruction of the bladder neck": "Neck_Rec",
            "closing": "A",
            "closing up": "B",
            "shut": "A",
            "Shut": "B",
            "3": "Neck",
        }
    }
)
LABELS = ("Preparation", "gastric_pouch_creation", "SuspendPericardium", "Dividing Ligament and Peritoneum")


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Which instrument is used when the phase Preparation begins?", "Preparation"),
        ("Which instrument is used at the onset of gastric pouch creation?", "gastric_pouch_creation"),
        ("Which instrument is used at the onset of the creation of the gastric pouch?", "none"),
        ("... when 'Suspend Pericardium' first begins?", "SuspendPericardium"),
        ("... when suspend-pericardium first begins?", "SuspendPericardium"),
        ("... in dividing the ligament & the peritoneum?", "Dividing Ligament and Peritoneum"),
        ("... when the left lymph nodes phase begins?", "LPIL"),
        ("... when the lymph nodes phase begins?", "Nodes"),
        ("... when reconstruction of bladder neck begins?", "Neck_Rec"),
        ("... when the bladder neck phase begins?", "Neck"),
        ("... after the bladder neck and before the lymph nodes?", "several"),
        ("... when preparations begin?", "none"),
        ("... in the first 3 seconds?", "none"),
        ("... when shut begins?", "ambiguous"),
        ("... when closing up begins?", "B"),
        ("Which phase is it?", "none"),
    ],
)
def test_phases(question, expected):
    result = read_phase(question, SOURCE, LABELS)
    assert (result.why if isinstance(result, Unread) else result) == expected


@pytest.mark.parametrize("reader", [autolaparo, grasp, multibypass140, pitvis, tmvp])
def test_every_wording_of_a_source_names_its_phase(reader):
    source = reader.SOURCE
    aliases = source.aliases["phases"]
    labels = sorted(set(aliases.values()))
    assert len(labels) >= 3
    for wording, label in (*aliases.items(), *zip(labels, labels, strict=True)):
        for question in (
            f"Which instrument is in use when the phase {wording} first begins?",
            f"{wording}: which?",
        ):
            assert read_phase(question, source, labels) == label, question
