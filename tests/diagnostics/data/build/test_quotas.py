"""Quotas: as even and as many as can be, by comparison with trying everything."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnostics.data.build import Config, build_in_memory
from diagnostics.data.build.annotations import VideoFacts


def probe(video: Path) -> VideoFacts:
    return VideoFacts(1000.0, 2.0, np.arange(2000) / 2)


def answers(procedures: list[list[int]], **config):
    """Counts of answers, and of questions by procedure: step `n` of a procedure is done so many times."""
    told = []
    for number, counts in enumerate(procedures):
        spots = iter(range(1000))
        steps = [
            {"start": 20.0 * spot, "end": 20.0 * spot + 9, "label": f"step {step}"}
            for step, count in enumerate(counts)
            for spot in itertools.islice(spots, count)  # eleven seconds between them: each a run
        ]
        told.append({"procedure": f"case-{number}", "video": f"{number}.mp4", "steps": steps})
    whole = {"source": "s", "procedures": told}
    items, audit = build_in_memory(whole, Path("/nowhere"), probe, Config(tasks=("CPR",), draws=9, **config))
    assert {entry.reason for entry in audit.entries} <= {"OverQuotaError"}
    right = Counter(int(item.options["ABCD".index(item.answer)]) for item in items)
    return right, Counter(item.metadata["procedure"] for item in items)


def possible(procedures: list[list[int]], most: int) -> set[tuple[int, ...]]:
    """Every vector of counts by answer that at most so many questions a procedure can give."""
    kinds = sorted({count for counts in procedures for count in counts})
    reached = {(0,) * len(kinds)}
    for counts in procedures:
        able = {
            tuple(Counter(chosen)[kind] for kind in kinds)
            for size in range(min(most, len(counts)) + 1)
            for chosen in itertools.combinations(counts, size)
        }
        reached = {tuple(np.add(a, b)) for a in reached for b in able}
    return reached


SMALL_SETS = st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3), min_size=1, max_size=5)


@given(SMALL_SETS, st.integers(1, 2), st.integers(0, 9))
@settings(max_examples=40, deadline=None)
def test_even_answers_are_the_most_that_can_be_even(procedures, most, seed):
    right, each = answers(procedures, per_procedure=most, even_answers=True, seed=seed)
    able = possible(procedures, most)
    kinds = sorted({count for counts in procedures for count in counts})
    level = max(min(vector) for vector in able)
    if level:
        assert [right[kind] for kind in kinds] == [level] * len(kinds)
    else:  # not one of each: as many different ones as there can be
        assert max(right.values()) == 1
        assert sum(right.values()) == max(sum(vector) for vector in able if max(vector) <= 1)
    assert max(each.values()) <= most


@given(SMALL_SETS, st.integers(1, 2), st.none() | st.integers(1, 6), st.integers(0, 9))
@settings(max_examples=40, deadline=None)
def test_quotas_keep_the_most_questions_and_raise_the_rarest_first(procedures, most, in_all, seed):
    right, each = answers(procedures, per_procedure=most, per_task=in_all, seed=seed)
    able = possible(procedures, most)
    if in_all is not None:
        able = {vector for vector in able if sum(vector) <= in_all}
    kinds = sorted({count for counts in procedures for count in counts})
    kept = [right[kind] for kind in kinds]
    assert sum(kept) == max(map(sum, able))
    assert sorted(kept) == max(sorted(vector) for vector in able)
    assert max(each.values()) <= most


def test_only_the_named_tasks_are_thinned():
    sets = [[1], [1], [1], [2]]
    assert answers(sets, even_answers=("LA",))[0] == {1: 3, 2: 1}
    assert answers(sets, even_answers=("CPR",))[0] == {1: 1, 2: 1}
    with pytest.raises(ValueError, match="there is no task 'CRP'"):
        Config(even_answers=("CRP",))


def test_which_are_kept_says_nothing_about_the_answer():
    """Of sets {1, 2} and {1, 3} the answer 1 is taken from either as often as chance has it."""
    procedures = [[1, 2] if number % 2 else [1, 3] for number in range(240)]
    told = []
    for number, counts in enumerate(procedures):
        steps = [
            {
                "start": 60.0 * step + 20.0 * spot,
                "end": 60.0 * step + 20.0 * spot + 9,
                "label": f"step {step}",
            }
            for step, count in enumerate(counts)
            for spot in range(count)
        ]
        told.append({"procedure": f"case-{number:03}", "video": f"{number}.mp4", "steps": steps})
    config = Config(tasks=("CPR",), draws=9, per_procedure=1, even_answers=True)
    items, _ = build_in_memory({"source": "s", "procedures": told}, Path("/nowhere"), probe, config)
    right = Counter(int(item.options["ABCD".index(item.answer)]) for item in items)
    assert right == {1: 80, 2: 80, 3: 80}
    ones = [int(i.metadata["procedure"][5:]) for i in items if i.options["ABCD".index(i.answer)] == "1"]
    assert sum(number % 2 for number in ones) == 40, "80 of 120 in each half have another answer"
    assert 20 <= sum(number < 120 for number in ones) <= 60, "not those that come first"


def test_tasks_take_turns():
    spaces = {"sites": list("abcd"), "histologies": list("abcd"), "sizes": list("abcd")}
    lesions = [{"lesion": "x", "windows": [[5, 9]], "site": "a", "size": "b", "histology": "c"}]
    told = [{"procedure": f"case-{n}", "video": f"{n}.mp4", "lesions": lesions} for n in range(6)]
    whole = {"source": "s", "spaces": spaces, "procedures": told}
    for count in (1, 2, 3):
        config = Config(tasks=("Site", "Hist", "Size"), tasks_per_procedure=count)
        items, audit = build_in_memory(whole, Path("/nowhere"), probe, config)
        assert Counter(item.task for item in items) == dict.fromkeys(config.tasks, 2 * count)
        assert set(Counter(item.metadata["procedure"] for item in items).values()) == {count}
        assert Counter(e.reason for e in audit.entries) == (
            {"OverQuotaError": 18 - 6 * count} if count < 3 else {}
        )
