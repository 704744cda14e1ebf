"""Paths to and from the right option and the others, on both families and on texts that tokens run across."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import hooks

from .conftest import OPTIONS, QUESTION


def mapped(bench, options=OPTIONS):
    inputs = bench.prompt(frames=4)
    return inputs, hooks.token_map(bench.model, bench.processor, inputs, question=QUESTION, options=options)


def test_each_option_is_its_own_text(bench) -> None:
    inputs, tokens = mapped(bench)
    tokenizer = bench.processor.tokenizer
    assert len(tokens.each_option) == len(OPTIONS)
    for own, text in zip(tokens.each_option, OPTIONS, strict=True):
        said = tokenizer.decode(inputs["input_ids"][0, own].tolist())
        assert text.strip() in said
        assert len(said.strip()) <= len(text) + 2
    together = np.concatenate(tokens.each_option)
    assert len(np.unique(together)) == len(together), "no token is two options'"
    assert np.array_equal(np.sort(together), tokens.options)


def test_one_text_is_an_option_a_line(bench) -> None:
    _, several = mapped(bench)
    _, one = mapped(bench, "\n".join(OPTIONS))
    for own, other in zip(several.each_option, one.each_option, strict=True):
        assert np.array_equal(own, other)
    assert set(np.concatenate(one.each_option)) <= set(one.options)
    _, none = mapped(bench, None)
    assert none.each_option == ()


@pytest.mark.parametrize("right", [0, 2])
@pytest.mark.parametrize("delimiters", [True, False])
def test_right_and_other_options_make_up_all_of_them(bench, right, delimiters) -> None:
    _, tokens = mapped(bench)
    for to in (True, False):
        names = ("video_to_{}", "video_to_options") if to else ("{}_to_last", "options_to_last")
        (whole,) = hooks.path_edges(tokens, names[1], delimiters=delimiters)
        own, others = (
            hooks.option_path_edges(tokens, names[0].format(which), right, delimiters=delimiters)[0]
            for which in ("right_option", "other_options")
        )
        split, same = ("queries", "keys") if to else ("keys", "queries")
        parts = np.sort(np.concatenate([getattr(own, split), getattr(others, split)]))
        assert np.array_equal(parts, getattr(whole, split))
        assert np.array_equal(getattr(own, split), tokens.each_option[right])
        for one in (own, others):
            assert np.array_equal(getattr(one, same), getattr(whole, same))
            assert one.generated == whole.generated


def test_both_blocked_are_all_blocked_and_one_is_not(bench) -> None:
    inputs, tokens = mapped(bench)

    @torch.no_grad()
    def logits(*edges: hooks.Edges) -> torch.Tensor:
        with hooks.knock_out(bench.model, tokens, edges):
            return bench.model(**inputs).logits[0, -1]

    (whole,) = hooks.path_edges(tokens, "video_to_options")
    (own,) = hooks.option_path_edges(tokens, "video_to_right_option", 1)
    (others,) = hooks.option_path_edges(tokens, "video_to_other_options", 1)
    assert float((logits(own, others) - logits(whole)).abs().max()) <= 1e-5
    assert float((logits(own) - logits(whole)).abs().max()) > 1e-5
    assert float((logits(own) - logits(others)).abs().max()) > 1e-5


def test_what_is_not_there_is_refused(bench) -> None:
    _, tokens = mapped(bench)
    _, bare = mapped(bench, None)
    _, alone = mapped(bench, OPTIONS[:1])
    for given, name, right, told in (
        (tokens, "video_to_wrong_option", 0, "no path 'video_to_wrong_option'"),
        (tokens, "video_to_right_option", 4, "Option 4 was called right: the prompt has 4"),
        (tokens, "video_to_right_option", -1, "Option -1"),
        (bare, "video_to_right_option", 0, "has 0 options"),
        (alone, "video_to_other_options", 0, "no tokens of such options"),
    ):
        with pytest.raises(hooks.InterventionError, match=told):
            hooks.option_path_edges(given, name, right)
