"""Counts and random controls of edges that overlap, against matrices of pairs."""

from __future__ import annotations

import numpy as np
import pytest

import hooks


def _matrix(edges, length):
    """The causal pairs of all edges as a boolean [query, key]."""
    blocked = np.zeros((length, length), dtype=bool)
    for one in edges:
        blocked[np.ix_(one.queries, one.keys)] = True
    return blocked & np.tri(length, dtype=bool)


def _tokens(bench, frames=17):
    inputs = bench.prompt(frames=frames)
    return hooks.token_map(bench.model, bench.processor, inputs, options=["A. red", "B. deep green"])


def _overlapping(tokens):
    """Units kept from the question, from the last rows, and from both again, keys and queries overlapping."""
    visual = [np.flatnonzero((tokens.unit == unit) & (tokens.row >= 0)) for unit in range(4)]
    late = np.concatenate([tokens.options, tokens.last])
    return (
        hooks.Edges(tokens.question, np.concatenate(visual[:2])),
        hooks.Edges(np.concatenate([tokens.question[5:], tokens.options]), np.concatenate(visual[1:3])),
        hooks.Edges(late, visual[3], generated=True),
        hooks.Edges(tokens.question, visual[0]),
    )


def test_pairs_that_are_in_two_edges_count_once(bench):
    tokens = _tokens(bench)
    edges = _overlapping(tokens)
    assert hooks.edge_count(edges) == _matrix(edges, len(tokens)).sum()
    assert hooks.edge_count(edges) < sum(one.count() for one in edges)
    for name in hooks.PATHS:
        path = hooks.path_edges(tokens, name)
        assert hooks.edge_count(path) == _matrix(path, len(tokens)).sum()


@pytest.mark.parametrize("seed", range(5))
def test_a_control_of_overlapping_edges_blocks_as_much_in_every_row(bench, seed):
    """Keys drawn for each by itself would coincide, or part where the edges share theirs."""
    tokens = _tokens(bench)
    edges = _overlapping(tokens)
    control = hooks.random_edges_like(tokens, edges, seed, rows="same")
    wanted, found = _matrix(edges, len(tokens)), _matrix(control, len(tokens))
    np.testing.assert_array_equal(found.sum(axis=1), wanted.sum(axis=1))
    assert not (found & wanted).any(), "other keys than the blocked ones"
    for one, other in zip(edges, control, strict=True):
        np.testing.assert_array_equal(one.queries, other.queries)
        assert len(one.keys) == len(other.keys)
        assert one.generated == other.generated
        assert (tokens.row[other.keys] >= 0).all(), "video for video"
    shared = [np.intersect1d(a.keys, b.keys).size for a in edges[:2] for b in edges[:2]]
    instead = [np.intersect1d(a.keys, b.keys).size for a in control[:2] for b in control[:2]]
    assert instead == shared


def test_a_control_in_any_rows_is_of_the_size_of_the_union(bench):
    tokens = _tokens(bench)
    edges = _overlapping(tokens)
    wanted = _matrix(edges, len(tokens)).sum()
    found = np.mean(
        [_matrix(hooks.random_edges_like(tokens, edges, seed), len(tokens)).sum() for seed in range(8)]
    )
    assert abs(found - wanted) <= wanted / 50


def test_mixed_keys_are_exchanged_within_what_each_edge_asks_for(bench):
    tokens = _tokens(bench)
    video = hooks.Edges(tokens.options, np.flatnonzero((tokens.unit == 1) & (tokens.row >= 0)))
    text = hooks.Edges(tokens.options, tokens.question[:3])
    first, second = hooks.random_edges_like(tokens, (video, text), 0, rows="same")
    assert (tokens.row[first.keys] >= 0).all()
    assert not np.isin(first.keys, second.keys).any()
    assert len(first.keys) == len(video.keys)
    assert len(second.keys) == 3


@pytest.mark.parametrize("seed", range(8))
def test_keys_with_the_fewest_to_choose_from_are_drawn_first(bench, seed):
    """Only the video's other half suits its first half; text before its end has more to choose from."""
    tokens = _tokens(bench)
    half, odd = divmod(tokens.n_visual, 2)
    end = int(tokens.visual[-1]) + 1
    early = np.flatnonzero(tokens.kind[:end] == hooks.Kind.TEXT)
    video = hooks.Edges(tokens.last, tokens.visual[:half])
    text = hooks.Edges(np.concatenate([[end], tokens.last]), early[: odd + 1])
    first, second = hooks.random_edges_like(tokens, (video, text), seed, rows="same")
    assert (tokens.row[first.keys] >= 0).all()
    assert not np.isin(first.keys, second.keys).any()
    assert (second.keys < end).all()
    assert len(early) > odd + 1, "something else is left for the text"
