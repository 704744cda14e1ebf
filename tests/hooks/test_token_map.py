from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hooks
from hooks import Kind


def _map(bench, inputs, **options):
    return hooks.token_map(bench.model, bench.processor, inputs, **options)


def _text(bench, tokens, positions):
    return bench.tokenizer.decode(tokens.input_ids[positions].tolist())


def test_a_question_and_its_options_are_found_and_nothing_else(bench):
    question, options = "Which colour is the lesion near the end?", ("A. red", "B. deep green")
    tokens = _map(bench, bench.prompt(question=question, options=options), question=question, options=options)
    assert _text(bench, tokens, tokens.question).strip() == question
    assert _text(bench, tokens, tokens.options).replace(" ", "") == "A.redB.deepgreen"
    assert tokens.last.tolist() == [len(tokens) - 1]


def test_without_a_question_the_text_after_the_video_is_taken_without_the_template(bench):
    tokens = _map(bench, bench.prompt(question="What is seen?", options=("A. one", "B. two")))
    assert _text(bench, tokens, tokens.question) == "What is seen?\nA. one\nB. two"
    with_options = _map(
        bench, bench.prompt(question="What is seen?", options=("A. one", "B. two")), options="A. one\nB. two"
    )
    assert _text(bench, with_options, with_options.question).strip() == "What is seen?"


def test_tokens_merged_across_the_edges_of_a_text_belong_to_it(qwen3):
    """The trained vocabulary has ' lesion' and ' appears' as one token each: 'esion that app' cuts both."""
    tokens = _map(
        qwen3, qwen3.prompt(question="Which lesion that appears is red?"), question="esion that app"
    )
    assert _text(qwen3, tokens, tokens.question).strip() == "lesion that appears"


def test_characters_spread_over_several_tokens_are_found(bench):
    question = "息肉是什么颜色? 🫀 naïve"
    tokens = _map(bench, bench.prompt(question=question), question=question)
    assert _text(bench, tokens, tokens.question).strip() == question
    inner = _map(bench, bench.prompt(question=question), question="什么颜")
    assert "什么颜" in _text(bench, inner, inner.question)
    assert len(inner.question) < len(tokens.question)


def test_a_text_that_is_not_there_is_an_error_that_quotes_it(bench):
    with pytest.raises(hooks.TokenMapError, match="'Where is it\\?' is not in the prompt"):
        _map(bench, bench.prompt(), question="Where is it?")


@settings(max_examples=12, deadline=None)
@given(
    frames=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    grids=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), min_size=3, max_size=3),
    name=st.sampled_from(["qwen3", "qwen2_5"]),
    images=st.integers(0, 2),
)
def test_every_visual_token_is_covered_once_in_order(qwen3, qwen2_5, frames, grids, name, images):
    bench = {"qwen3": qwen3, "qwen2_5": qwen2_5}[name]
    frames = [max(2, n) for n in frames]  # Qwen3-VL's processor refuses a single frame
    sizes = [grid if n % 2 else (grid[1], grid[0]) for n, grid in zip(frames, grids, strict=False)]
    inputs = bench.prompt(frames=frames, sizes=sizes, images=images)
    tokens = _map(bench, inputs, n_frames=frames)
    ids = inputs["input_ids"][0].numpy()
    video, image = bench.model.config.video_token_id, bench.model.config.image_token_id
    assert np.array_equal(tokens.visual, np.flatnonzero((ids == video) | (ids == image)))
    expected = [(1, *bench_size) for bench_size in [(2, 3)] * images]
    expected += [(-(-n // 2), *size) for n, size in zip(frames, sizes, strict=True)]
    walk = [
        (source, row, col)
        for source, (units, rows, cols) in enumerate(expected)
        for _ in range(units)
        for row in range(rows)
        for col in range(cols)
    ]
    seen = tokens.visual
    found = zip(tokens.unit_source[tokens.unit[seen]], tokens.row[seen], tokens.col[seen], strict=True)
    assert [tuple(map(int, place)) for place in found] == walk
    assert np.all(np.diff(tokens.unit[seen]) >= 0)
    assert tokens.tokens_per_unit.sum() == tokens.n_visual == len(walk)
    shown = [tokens.unit_slots[tokens.unit_source == images + i].ravel() for i in range(len(frames))]
    assert [slots[slots >= 0].tolist() for slots in shown] == [list(range(n)) for n in frames]


@settings(max_examples=10, deadline=None)
@given(
    name=st.sampled_from(["qwen3", "qwen2_5"]),
    grid=st.tuples(st.integers(2, 5), st.integers(2, 5)),
    data=st.data(),
)
def test_a_painted_patch_lies_where_the_map_says(qwen3, qwen2_5, name, grid, data):
    """Pixels are followed through the processor: four patches a token, in the order of the token axis."""
    bench = {"qwen3": qwen3, "qwen2_5": qwen2_5}[name]
    unit, row, col = (data.draw(st.integers(0, top - 1)) for top in (3, *grid))
    side = 2 * bench.patch

    def painted(_generator, frames, size):
        video = np.zeros((frames, size[0] * side, size[1] * side, 3), dtype=np.uint8)
        video[2 * unit : 2 * unit + 2, row * side : (row + 1) * side, col * side : (col + 1) * side] = 255
        return video

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench, "pixels", painted)
        inputs = bench.prompt(frames=6, size=grid)
    tokens = _map(bench, inputs)
    lit = int(inputs["pixel_values_videos"].unflatten(0, (-1, 4)).mean((1, 2)).argmax())
    where = tokens.visual[lit]
    assert (tokens.unit[where], tokens.row[where], tokens.col[where]) == (unit, row, col)
    assert tokens.unit_slots[unit].tolist() == [2 * unit, 2 * unit + 1]


def test_unit_sums_equal_a_loop(bench):
    tokens = _map(bench, bench.prompt(frames=[4, 3], sizes=[(2, 3), (1, 2)]))
    values = np.random.default_rng(0).random((2, tokens.n_visual))
    loop = [values[:, tokens.unit[tokens.visual] == unit].sum(axis=1) for unit in range(tokens.n_units)]
    np.testing.assert_allclose(tokens.unit_sum(values), np.array(loop).T, atol=1e-12)
    assert all(
        np.array_equal(values[0, tokens.unit_tokens(unit)], values[0, tokens.unit[tokens.visual] == unit])
        for unit in range(tokens.n_units)
    )


def test_times_in_the_prompt_are_read_and_marked(qwen3):
    inputs = qwen3.prompt(frames=7, fps=25.0, stride=40)
    tokens = _map(qwen3, inputs, n_frames=np.int64(7))
    # The mean of a unit's two frames, the last frame shown twice, printed with one decimal.
    frames = np.array([0, 40, 80, 120, 160, 200, 240, 240]) / 25.0
    expected = [float(f"{seconds:.1f}") for seconds in frames.reshape(-1, 2).mean(axis=1)]
    assert tokens.unit_shown_seconds.tolist() == expected
    for unit in range(4):
        marked = np.flatnonzero((tokens.kind == Kind.TIMESTAMP) & (tokens.unit == unit))
        assert _text(qwen3, tokens, marked) == f"<{expected[unit]:.1f} seconds>"
    delimiters = tokens.input_ids[tokens.kind == Kind.DELIMITER]
    assert len(delimiters) == 2 * 4 + 2, "four units and the outer pair"


def test_without_the_outer_pair_the_map_is_the_same_but_shorter(qwen3):
    """transformers < 5.10 and other stacks leave the pair around the whole video out."""
    inputs = qwen3.prompt(frames=4)
    whole = _map(qwen3, inputs)
    outer = [3, int(whole.visual[-1]) + 2]
    keep = np.setdiff1d(np.arange(len(whole)), outer)
    bare = dict(inputs) | {name: inputs[name][:, keep] for name in ("input_ids", "attention_mask")}
    bare["mm_token_type_ids"] = inputs["mm_token_type_ids"][:, keep]
    tokens = _map(qwen3, bare)
    for name in ("kind", "unit", "row", "col", "input_ids"):
        assert np.array_equal(getattr(tokens, name), getattr(whole, name)[keep]), name
    assert tokens.unit_shown_seconds.tolist() == whole.unit_shown_seconds.tolist()


def test_qwen2_5_times_come_from_seconds_per_grid(qwen2_5):
    inputs = qwen2_5.prompt(frames=6, fps=10.0, stride=5)
    tokens = _map(qwen2_5, inputs)
    np.testing.assert_allclose(tokens.unit_shown_seconds, [0.0, 1.0, 2.0], atol=1e-6)
    del inputs["second_per_grid_ts"]
    assert np.isnan(_map(qwen2_5, inputs).unit_shown_seconds).all()


def test_rows_of_a_batch_are_padded_left_and_take_their_own_grids(bench, padded_batch):
    batch = padded_batch(bench)
    first, second = (_map(bench, batch, row=row) for row in (0, 1))
    assert (first.kind == Kind.PADDING).sum() > 0
    assert (second.kind == Kind.PADDING).sum() == 0
    assert first.unit_grid.tolist() == [[1, 2]]
    assert second.unit_grid.tolist() == [[2, 3]] * 3
    assert second.unit_feature_start.tolist() == [2, 8, 14]
    alone = _map(bench, bench.prompt(frames=2, size=(1, 2)))
    shift = len(first) - len(alone)
    assert np.array_equal(first.visual, alone.visual + shift)
    assert np.array_equal(first.question, alone.question + shift)


def _broken(inputs, **changes):
    return {
        name: value.clone() if hasattr(value, "clone") else value for name, value in inputs.items()
    } | changes


def test_a_grid_that_promises_more_tokens_is_an_error_with_both_numbers(bench):
    inputs = bench.prompt(frames=4)
    grid = inputs["video_grid_thw"].clone()
    grid[0, 0] += 1
    with pytest.raises(hooks.TokenMapError, match=r"holds 12 placeholders .* give 18"):
        _map(bench, _broken(inputs, video_grid_thw=grid))


def test_a_row_that_ends_inside_a_grid_is_an_error(bench, padded_batch):
    batch = padded_batch(bench)
    batch["video_grid_thw"] = batch["video_grid_thw"].flip(0)
    with pytest.raises(hooks.TokenMapError, match="no number of whole ones"):
        _map(bench, batch)


def test_swapped_rows_and_columns_cannot_be_seen_but_a_torn_unit_can(qwen3):
    inputs = qwen3.prompt(frames=4)
    visual = _map(qwen3, inputs).visual
    torn = _broken(inputs)
    ids, types = torn["input_ids"], torn["mm_token_type_ids"]
    text = int(visual[-1]) + 3  # move one placeholder from the first unit into the text
    for array in (ids, types):
        array[0, visual[2]], array[0, text] = array[0, text].clone(), array[0, visual[2]].clone()
    with pytest.raises(hooks.TokenMapError, match="spread over positions"):
        _map(qwen3, torn)


@pytest.mark.parametrize("place", [-1, 1])
def test_a_missing_delimiter_is_an_error(bench, place):
    inputs = _broken(bench.prompt(frames=4))
    visual = _map(bench, inputs).visual
    edge = int(visual[0]) - 1 if place < 0 else int(visual[-1]) + 1
    inputs["input_ids"][0, edge] = bench.tokenizer.encode("a")[0]
    with pytest.raises(hooks.TokenMapError, match=rf"Position {edge} .* not the delimiter"):
        _map(bench, inputs)


def test_a_missing_time_is_an_error(qwen3):
    inputs = _broken(qwen3.prompt(frames=4))
    tokens = _map(qwen3, inputs)
    inputs["input_ids"][0, np.flatnonzero(tokens.kind == Kind.TIMESTAMP)[1]] = qwen3.tokenizer.encode("a")[0]
    with pytest.raises(hooks.TokenMapError, match="No time stands before unit 0"):
        _map(qwen3, inputs)


def test_token_types_that_disagree_are_an_error(bench):
    inputs = _broken(bench.prompt(frames=4))
    inputs["mm_token_type_ids"][0, -1] = 2
    with pytest.raises(hooks.TokenMapError, match=r"mm_token_type_ids disagrees .* video at 1 positions"):
        _map(bench, inputs)


def test_frames_sampled_again_by_the_processor_are_an_error(bench):
    with pytest.raises(hooks.TokenMapError, match="7 frames make 4 units of 2, the grid has 2"):
        _map(bench, bench.prompt(frames=4), n_frames=7)


def test_padding_on_the_right_is_an_error(bench):
    inputs = _broken(bench.prompt(frames=4))
    inputs["attention_mask"][0, -2:] = 0
    with pytest.raises(hooks.TokenMapError, match="not all on the left"):
        _map(bench, inputs)


def test_a_prompt_without_vision_has_no_units(bench):
    text = bench.processor.apply_chat_template(
        [{"role": "user", "content": [{"type": "text", "text": "Which colour?"}]}],
        tokenize=False,
        add_generation_prompt=True,
    )
    inputs = dict(bench.processor(text=[text], return_tensors="pt"))
    tokens = _map(bench, inputs, question="Which colour?")
    assert (tokens.n_units, tokens.n_visual) == (0, 0)
    with hooks.attention_rows(bench.model, tokens, rows="question") as captured:
        bench.model(**inputs)
    np.testing.assert_allclose(captured.rest_mass(), 1.0, atol=1e-5)
    assert captured.unit_mass().shape == (3, 4, 1, 0)


def test_a_person_can_read_the_map(qwen3):
    table = _map(qwen3, qwen3.prompt(frames=3), n_frames=3).describe(qwen3.tokenizer)
    lines = [line.split(None, 2) for line in table.splitlines()]
    assert ["25-30", "video", "1               6 tokens, 2 x 3, frames 2"] in lines
    assert "'<1.7 seconds>'" in table
    assert "question" in table


def test_an_unknown_model_is_refused_with_the_known_ones():
    class Other:
        class config:
            model_type = "no_such_model"

    with pytest.raises(hooks.UnsupportedModelError, match=r"'no_such_model'.*qwen2_5_vl.*qwen3_vl"):
        hooks.token_map(Other(), None, {})
