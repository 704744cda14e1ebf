"""The audit's counting, on the paper's own table of items."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from diagnostics.data.build.counting import counted_as, source_of, task_of
from diagnostics.data.items import Evidence, Item, Window

PAPER = {
    "PR": 517,
    "SD": 112,
    "RL": 60,
    "IR": 235,
    "BPQ": 39,
    "LLS": 39,
    "Site": 47,
    "Hist": 47,
    "Size": 47,
    "WR": 26,
    "RSR": 26,
    "CPR": 26,
    "LA": 32,
}
"""MedHorizon's items by task (arXiv 2605.06537): 1,253 in all, 30 of them from US-Study."""


def item(task: str, **metadata: str) -> Item:
    return Item("q", Path("/v.mp4"), "v.mp4", "?", task=task, metadata=metadata)


@given(
    st.tuples(st.integers(0, 30), st.integers(0, 30)), st.sampled_from(["US-Study", "us_study", "US Study"])
)
@settings(max_examples=30, deadline=None)
def test_the_papers_totals(cuts, name):
    """Of which families US-Study's thirty items are, nobody says: the totals must not depend on it."""
    low, high = sorted(cuts)
    ultrasound = {"PR": low, "SD": high - low, "IR": 30 - high}
    items = []
    for task, n in PAPER.items():
        for number in range(n):
            source = name if number < ultrasound.get(task, 0) else "GraSP"
            items.append(item(f"name of {task}", task_id=task, dataset=source))
    assert len(items) == 1253
    counts = Counter(map(counted_as, items))
    assert counts == {"exact": 894, "proxy": 141, "excluded": 218}
    assert counts["exact"] + counts["proxy"] == 1035


def test_the_lesion_union_is_oracle_evidence_and_still_not_counted():
    union = Evidence((Window(1.0, 2.0),), "proxy")
    for task in ("LLS", "LA"):
        assert counted_as(Item("q", Path("/v.mp4"), "v", "?", task=task, evidence=union)) == "excluded"


def test_other_benchmarks_count_by_the_kind_of_their_evidence():
    def of(evidence: Evidence | None) -> str:
        return counted_as(Item("q", Path("/v.mp4"), "v", "?", task="colour", evidence=evidence))

    assert of(Evidence((Window(1.0, 2.0),), "exact")) == "exact"
    assert of(Evidence((Window(1.0, 2.0),), "proxy")) == "proxy"
    assert of(Evidence((), "global")) == "excluded"
    assert of(None) == "excluded"


def test_names_are_read_from_either_release():
    assert task_of(item("Histology", task_id="HIST")) == "Hist"
    assert task_of(item("site")) == "Site"
    assert task_of(item("lesion_colour")) == "lesion_colour"
    assert source_of(item("PR", dataset="tmvp")) == "tmvp"
    assert source_of(item("PR", source="mine", dataset="tmvp")) == "mine"
    assert source_of(item("PR")) == ""
