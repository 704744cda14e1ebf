"""Rules by time, change, chance and evidence, on cases worked by hand; and what all have in common."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnostics.data.items import Window
from diagnostics.errors import ConfigError, EmptySelectionError, NoEvidenceError, ScoresError
from diagnostics.video.candidates import Candidates, candidate_frames, evenly
from diagnostics.video.sampling import load_sampler, select_frames
from diagnostics.video.selection import in_window

from .conftest import candidates_of, chosen, index_of, item_of

INF = float("inf")


def test_change_by_hand():
    candidates = candidates_of(8, change=[INF, 0.1, 0.9, 0.2, 0.8, 0.2, 0.0, 0.7])
    assert chosen("differential", candidates, budget=3) == [0, 2, 4]
    assert chosen("differential", candidates, budget=5) == [0, 2, 3, 4, 7], "of equal ones the earlier"
    assert chosen("differential", candidates, budget=3, min_gap=3.0) == [0, 4, 7], "2 is too near to 0"
    assert chosen("differential", candidates, budget=5, min_gap=3.0) == [0, 2, 3, 4, 7], (
        "then the nearer ones"
    )
    assert chosen("hybrid", candidates, budget=4) == [0, 2, 4, 7], (
        "0 and 7 evenly, then the largest of the rest"
    )
    assert chosen("hybrid", candidates, budget=5) == [0, 2, 3, 4, 7]
    assert chosen("hybrid", candidates, budget=1) == [0]


def test_change_of_features_by_hand():
    features = [[1, 0], [2, 0], [0, 3], [0, 1], [-1, 0]]
    candidates = candidates_of(5, features=features)
    # 1 - cos: infinite, 0, 1, 0, 1.
    assert chosen("differential", candidates, budget=3, metric="feature") == [0, 2, 4]
    assert chosen("differential", candidates, budget=4, metric="feature") == [0, 1, 2, 4]


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 200), st.integers(1, 60), st.integers(0, 999), st.sampled_from([0.0, 2.0, 9.5]))
def test_change_and_hybrid_as_plain_loops(count, budget, seed, gap):
    change = np.round(np.random.default_rng(seed).random(count), 1)
    change[:1] = INF
    for name, start in (("differential", 0), ("hybrid", budget // 2)):
        taken = evenly(count, start).tolist()
        ranked = [i for i in sorted(range(count), key=lambda i: (-change[i], i)) if i not in taken]
        waiting = []
        for place in ranked:
            if len(taken) < min(budget, count):
                near = any(abs(place - other) < gap for other in taken)
                (waiting if near else taken).append(place)
        taken += waiting[: min(budget, count) - len(taken)]
        assert chosen(name, candidates_of(count, change=change), budget=budget, min_gap=gap) == sorted(taken)


def test_a_draw_is_the_item_s_own_and_fair():
    candidates = candidates_of(50)
    one = chosen("random", candidates, item_of(name="one"), budget=10)
    assert one == chosen("random", candidates, item_of(name="one"), budget=10)
    assert one != chosen("random", candidates, item_of(name="two"), budget=10)
    assert one != chosen("random", candidates, item_of(name="one"), budget=10, seed=1)
    times = np.zeros(50)
    for number in range(2000):
        times[chosen("random", candidates, item_of(name=str(number)), budget=10)] += 1
    # Binomial(2000, 0.2): 400 each, standard deviation 17.9.
    assert np.abs(times - 400).max() < 5 * 17.9


def test_the_draw_does_not_change_between_versions():
    assert chosen("random", candidates_of(100), item_of(name="one"), budget=5) == DRAW


DRAW = [54, 73, 78, 83, 95]


def test_the_oracle_shares_its_budget_among_windows():
    item = item_of(Window(10.0, 12.0), Window(50.0, 90.0))
    places = chosen("oracle", candidates_of(100), item, budget=6)
    assert places == [10, 11, 55, 65, 75, 85], (
        "both of the short one, the middles of four parts of the long one"
    )


def test_a_short_evidence_is_filled_up_left_or_refused():
    item, candidates = item_of(Window(10.0, 12.0)), candidates_of(100)
    filled = chosen("oracle", candidates, item, budget=5)
    assert set(filled) > {10, 11}
    assert (filled[0], filled[-1], len(filled)) == (0, 99, 5)
    assert chosen("oracle", candidates, item, budget=5, short="fewer") == [10, 11]
    with pytest.raises(NoEvidenceError, match="2 frames and 5"):
        chosen("oracle", candidates, item, budget=5, short="refuse")


@pytest.mark.parametrize("item", [item_of(), item_of(kind="global")], ids=["none", "global"])
def test_no_oracle_without_evidence(item):
    with pytest.raises(NoEvidenceError, match="one"):
        chosen("oracle", candidates_of(100), item, budget=5)


def test_a_window_between_two_frames_gives_the_frame_on_screen():
    candidates = candidates_of(100)
    assert chosen("oracle", candidates, item_of(Window(10.2, 10.7)), budget=1) == [10]
    assert chosen("oracle", candidates, item_of(Window(10.2, 10.7), Window(40, 42)), budget=2) == [10, 41]
    sparse = Candidates(index_of(1000, rate=10.0), np.arange(0, 1000, 10))
    by_frames = item_of(Window(float("nan"), float("nan"), 33, 36))
    assert chosen("oracle", sparse, by_frames, budget=1) == [3], "frame 30 is the candidate before 33"


@settings(deadline=None, max_examples=100)
@given(
    st.integers(1, 300),
    st.integers(1, 80),
    st.lists(st.tuples(st.floats(0, 300), st.floats(0, 40)), min_size=1, max_size=5),
)
def test_the_oracle_shows_all_the_evidence_it_can(count, budget, spans):
    windows = [Window(start, start + length) for start, length in spans]
    index = index_of(count)
    places = np.array(chosen("oracle", candidates_of(count), item_of(*windows), budget=budget, short="fewer"))
    inside = np.zeros(count, dtype=bool)
    for window in windows:
        inside |= in_window(window, np.arange(count), index.seconds)
    empty = sum(not in_window(window, np.arange(count), index.seconds).any() for window in windows)
    assert inside[places].sum() >= min(budget - min(empty, budget), inside.sum())
    assert (~inside[places]).sum() <= empty, "others only for windows that hold no frame"


def test_candidates_at_a_rate_and_capped():
    index = index_of(1000, rate=25.0)
    assert candidate_frames(index, None).tolist() == list(range(1000))
    assert candidate_frames(index, 1.0).tolist() == list(range(0, 1000, 25))
    assert candidate_frames(index, 1.0, most=7).tolist() == [
        0,
        150,
        325,
        475,
        650,
        800,
        975,
    ]  # floor(39 k / 6)
    assert candidate_frames(index, 1.0, most=40).tolist() == list(range(0, 1000, 25))
    assert candidate_frames(index_of(1), 0.01).tolist() == [0]


@pytest.mark.parametrize("name", ["scores", "features", "change"])
def test_signals_of_another_length_are_refused(name):
    values = np.zeros((4, 2)) if name == "features" else np.zeros(4)
    with pytest.raises(ScoresError, match=r"\(4,.*5 candidates"):
        Candidates(index_of(5), np.arange(5), **{name: values})
    with pytest.raises(ScoresError, match="order of time"):
        Candidates(index_of(5), np.array([1, 0]))


class Recording:
    """Signals that remember what they were asked for."""

    def __init__(self) -> None:
        self.asked: list[frozenset[str]] = []

    def candidates(self, needs, config, index, frames, item):
        self.asked.append(needs)
        ramp = np.arange(len(frames), dtype=float)
        given = {"scores": ramp, "change": ramp, "features": np.stack([ramp, ramp[::-1]], axis=1)}
        return Candidates(index, frames, **{name: given[name] for name in needs})


@pytest.mark.parametrize(
    ("name", "parameters", "needs"),
    [
        ("uniform", {}, None),
        ("random", {}, None),
        ("oracle", {}, None),
        ("differential", {}, {"change"}),
        ("differential", {"metric": "feature"}, {"features"}),
        ("hybrid", {}, {"change"}),
        ("aks", {}, {"scores"}),
        ("dks", {}, {"scores", "features"}),
        ("wfs_sb", {}, {"scores", "features"}),
        ("wfs_sb", {"likeness": "time"}, {"scores"}),
    ],
)
def test_signals_are_asked_for_what_is_needed_and_no_more(name, parameters, needs):
    module, signals = load_sampler(name), Recording()
    index, item = index_of(400, rate=4.0), item_of(Window(10.0, 12.0))
    selection = select_frames(module, module.Config(budget=8, **parameters), index, item, signals)
    assert signals.asked == ([] if needs is None else [frozenset(needs)])
    assert len(selection) == selection.requested == 8
    assert selection.rule.startswith(f"{name}(")
    assert "budget=8" in selection.rule
    np.testing.assert_array_equal(selection.true_seconds, index.seconds[selection.frame_indices])
    if needs:
        assert (selection.frame_indices % 4 == 0).all(), "candidates at one a second"
        with pytest.raises(ConfigError, match=f"{name} needs"):
            select_frames(module, module.Config(budget=8, **parameters), index, item)


def test_the_rule_says_which_scorer_and_what_became_of_the_evidence():
    dks, oracle = load_sampler("dks"), load_sampler("oracle")
    rule = select_frames(dks, dks.Config(budget=4), index_of(40), item_of(), Recording()).rule
    assert "scorer=(name=novelty" in rule
    assert rule.endswith("padded")
    item = item_of(Window(10.0, 12.0))
    assert select_frames(oracle, oracle.Config(budget=5), index_of(40), item).rule.endswith(
        "2 evidence frames, 3 others"
    )


def test_the_released_code_s_empty_choice_is_an_error_with_a_way_out():
    aks = load_sampler("aks")
    config = aks.Config(budget=8, strategy="ada_release")
    with pytest.raises(EmptySelectionError, match="none of 200"):
        select_frames(aks, config, index_of(200), item_of(), Recording())


@pytest.mark.parametrize("places", [[3, 3], [4, 2], [-1, 2], [2, 40]])
def test_a_sampler_that_breaks_its_promise_is_named(places):
    broken = SimpleNamespace(
        __name__="mine.broken", NEEDS=frozenset(), choose=lambda config, candidates, item: np.array(places)
    )
    uniform = load_sampler("uniform")
    with pytest.raises(ConfigError, match="broken"):
        select_frames(broken, uniform.Config(budget=2), index_of(40), item_of())


def test_a_sampler_that_asks_for_what_nobody_computes_is_refused():
    greedy = SimpleNamespace(__name__="greedy", NEEDS=frozenset({"score"}), choose=None)
    with pytest.raises(ConfigError, match="score"):
        select_frames(greedy, load_sampler("uniform").Config(), index_of(4), item_of())
