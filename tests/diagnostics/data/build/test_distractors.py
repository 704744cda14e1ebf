"""Wrong options: fair, near, and without a place that betrays the right one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from diagnostics.data.build import Config, build_in_memory
from diagnostics.data.build.annotations import VideoFacts
from diagnostics.data.build.distractors import Balance

DURATION, FPS = 1000.0, 2.0


def probe(video: Path) -> VideoFacts:
    return VideoFacts(DURATION, FPS, np.arange(round(DURATION * FPS)) / FPS)


def counted(counts: list[int], **config):
    """Items that ask how often a step happened, one procedure a count."""
    procedures = [
        {
            "procedure": f"case-{number}",
            "video": f"{number}.mp4",
            "steps": [{"start": 20.0 * k, "end": 20.0 * k + 9, "label": "sew"} for k in range(count)],
        }
        for number, count in enumerate(counts)
    ]
    whole = {"source": "s", "procedures": procedures}
    return build_in_memory(whole, Path("/nowhere"), probe, Config(tasks=("CPR",), **config))[0]


def place_among_sorted(item) -> int:
    numbers = sorted(float(option.split()[0]) for option in item.options)
    return numbers.index(float(item.options["ABCDEFGHIJ".index(item.answer)].split()[0]))


@given(st.lists(st.integers(1, 12), min_size=1, max_size=40), st.integers(2, 6), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_counts_are_neighbours_and_the_right_one_is_among_them(counts, options, seed):
    for count, item in zip(counts, counted(counts, options=options, seed=seed), strict=True):
        numbers = sorted(int(option) for option in item.options)
        assert numbers == list(range(numbers[0], numbers[0] + options))
        assert numbers[0] >= 1
        assert int(item.options["ABCDEFGHIJ".index(item.answer)]) == count


@pytest.mark.parametrize("options", [3, 4, 5])
def test_the_middle_is_no_likelier_than_the_ends(options):
    """Of counts that could stand at any place, every place is taken equally often, within one."""
    random = np.random.default_rng(3)
    items = counted([int(count) for count in random.integers(options, 12, 80)], options=options)
    places = Counter(place_among_sorted(item) for item in items)
    assert set(places) == set(range(options))
    assert chisquare(list(places.values())).pvalue > 0.2, places


def test_no_number_is_offered_that_is_never_right_where_it_can_be_avoided():
    for item in counted([1, 2, 3, 4] * 10):
        assert sorted(item.options) == ["1", "2", "3", "4"]
    for item in counted([2, 7, 4, 5, 3, 6] * 5):
        assert {int(option) for option in item.options} <= set(range(2, 8))
    for item in counted([2, 3] * 5):  # two numbers are no four options
        assert len(item.options) == 4


def test_a_reader_of_the_option_set_alone_does_not_know_the_count():
    """Guessing the most frequent place of each option set is no better than its share by chance allows."""
    random = np.random.default_rng(4)
    items = counted([int(count) for count in random.integers(4, 12, 200)])
    sets: dict[tuple, Counter] = {}
    for item in items:
        sets.setdefault(tuple(sorted(item.options)), Counter())[place_among_sorted(item)] += 1
    hits = sum(max(places.values()) for places in sets.values())
    assert hits / len(items) < 0.45, f"{hits} of {len(items)} by the best rule fitted to these very items"


@given(
    st.lists(st.sets(st.integers(0, 3), min_size=1), min_size=1, max_size=60),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=100, deadline=None)
def test_balance_takes_only_possible_places(possible, seed):
    balance, random = Balance(), np.random.default_rng(seed)
    for number, places in enumerate(possible):
        sets = {place: (f"{number}", f"{place}") for place in places}
        assert balance.choose("T", sets, random) in sets.values()
    assert sum(balance.overall["T"].values()) == len(possible)


def test_balance_is_within_one_where_every_place_is_possible():
    balance, random = Balance(), np.random.default_rng(0)
    for number in range(42):
        balance.choose("T", {place: (f"{number}-{place}",) for place in range(4)}, random)
    assert max(balance.overall["T"].values()) - min(balance.overall["T"].values()) <= 1


def test_ordered_labels_are_neighbours_too():
    sizes = [f"size {n}" for n in range(8)]
    lesions = [
        {"lesion": f"L{n}", "windows": [[50.0 * n, 50.0 * n + 5]], "size": size}
        for n, size in enumerate(sizes)
    ]
    whole = {
        "source": "s",
        "spaces": {"sizes": sizes},
        "procedures": [{"procedure": "case", "video": "a.mp4", "lesions": lesions}],
    }
    items, _ = build_in_memory(whole, Path("/nowhere"), probe, Config(tasks=("Size",)))
    assert len(items) == 8
    for item in items:
        ranks = sorted(sizes.index(option) for option in item.options)
        assert ranks == list(range(ranks[0], ranks[0] + 4))


def test_numeric_sizes_are_steps_apart_and_positive():
    lesions = [{"lesion": "L", "windows": [[5, 9]], "size": 7}]
    whole = {"procedure": "case", "video": "a.mp4", "lesions": lesions}
    for seed in range(6):
        (item,), _ = build_in_memory(whole, Path("/nowhere"), probe, Config(tasks=("Size",), seed=seed))
        numbers = sorted(float(option.removesuffix(" mm")) for option in item.options)
        assert numbers[0] in (2.0, 7.0)
        assert np.allclose(np.diff(numbers), 5)


def test_phases_near_in_time_come_first_from_both_sides_alike():
    """In a fixed order of phases the neighbours surround the answer: its rank must not be the middle."""
    names = [f"phase {n}" for n in range(10)]
    phases = [{"start": 100.0 * n, "end": 100.0 * n + 100, "label": name} for n, name in enumerate(names)]
    whole = {"procedure": "case", "video": "a.mp4", "phases": phases}
    config = Config(tasks=("PR",), windows_per_run=12)
    items, _ = build_in_memory(whole, Path("/nowhere"), probe, config)
    assert len(items) > 60
    places: Counter = Counter()
    sets: dict[tuple, Counter] = {}
    for item in items:
        rank = names.index(item.options["ABCD".index(item.answer)])
        ranks = sorted(names.index(option) for option in item.options)
        assert ranks == list(range(ranks[0], ranks[0] + 4)), "the nearest come first"
        places[ranks.index(rank)] += 1
        sets.setdefault(tuple(ranks), Counter())[ranks.index(rank)] += 1
    middle = (places[1] + places[2]) / len(items)
    assert 0.35 < middle < 0.65, places
    # Nearest neighbours without balance put the answer into the middle of three sets in four.
    hits = sum(max(uses.values()) for uses in sets.values())
    assert hits / len(items) < 0.5, sets
