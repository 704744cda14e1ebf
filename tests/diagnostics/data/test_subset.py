from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnostics.data.items import Item
from diagnostics.data.subset import SubsetConfig, select_subset
from diagnostics.errors import ConfigError
from diagnostics.strict import from_mapping


def items_of(counts):
    return [
        Item(f"{task}/{n}", Path("v.mp4"), "v.mp4", "?", task=task)
        for task, count in counts.items()
        for n in range(count)
    ]


COUNTS = st.dictionaries(st.sampled_from(["PR", "SD", "RL", "IR", "CPR"]), st.integers(1, 40), min_size=1)


@settings(max_examples=80, deadline=None)
@given(counts=COUNTS, size=st.integers(1, 120), seed=st.integers(0, 5), data=st.data())
def test_a_pilot_is_stratified_and_does_not_depend_on_order(counts, size, seed, data):
    items = items_of(counts)
    config = SubsetConfig(pilot=size, pilot_seed=seed)
    chosen = select_subset(items, config)
    shares = Counter(item.task for item in chosen)
    total = len(items)
    assert len(chosen) == min(size, total)
    assert [item for item in items if item in set(chosen)] == chosen, "in the order of the data set"
    if size >= len(counts):
        assert set(shares) == set(counts), "each task has at least one"
    for task, count in counts.items():
        exact = min(size, total) * count / total
        assert shares[task] < exact + 1 or shares[task] == 1
        if size >= 5 * total / min(counts.values()):  # nobody needs the guarantee: exact proportions, rounded
            assert abs(shares[task] - exact) < 1
    shuffled = data.draw(st.permutations(items))
    assert {item.id for item in select_subset(shuffled, config)} == {item.id for item in chosen}


def test_the_seed_chooses_another_pilot():
    items = items_of({"PR": 30, "SD": 30})
    pilots = {
        frozenset(i.id for i in select_subset(items, SubsetConfig(pilot=10, pilot_seed=s))) for s in range(5)
    }
    assert len(pilots) == 5


def test_narrowings_apply_in_order():
    items = items_of({"PR": 4, "SD": 4})
    assert [i.id for i in select_subset(items, SubsetConfig(ids=("SD/1", "PR/0")))] == ["PR/0", "SD/1"]
    assert [i.id for i in select_subset(items, SubsetConfig(tasks=("SD",), limit=2))] == ["SD/0", "SD/1"]
    assert select_subset(items, SubsetConfig()) == items


def test_unknown_names_are_errors_with_near_matches():
    items = items_of({"lesion_colour": 2})
    with pytest.raises(ConfigError, match=r"'lesion_color': Did you mean 'lesion_colour'\?"):
        select_subset(items, SubsetConfig(tasks=("lesion_color",)))
    with pytest.raises(ConfigError, match="lesion_colour/1"):
        select_subset(items, SubsetConfig(ids=("lesion_colour/11",)))


def test_asking_for_a_rejected_item_is_no_mistake():
    items = items_of({"PR": 2})
    assert select_subset(items, SubsetConfig(ids=("bad",)), rejected_ids=["bad"]) == []


def test_nothing_left_is_an_error():
    with pytest.raises(ConfigError, match="No item is left"):
        select_subset(items_of({"PR": 2, "SD": 2}), SubsetConfig(ids=("PR/0",), tasks=("SD",)))


def test_names_from_the_command_line():
    config = from_mapping(SubsetConfig, {"ids": [12, "q/3"], "tasks": "PR"}, "data")
    assert (config.ids, config.tasks) == (("12", "q/3"), ("PR",))
    for wrong in ({"limit": 0}, {"pilot": -1}, {"limit": 2.5}):
        with pytest.raises(ConfigError):
            from_mapping(SubsetConfig, wrong, "data")
