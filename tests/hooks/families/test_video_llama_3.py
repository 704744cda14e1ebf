"""VideoLLaMA3: tokens that token compression drops, and what is left to map; images that are not merged."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

import hooks
from hooks import Kind
from hooks.families.video_llama_3 import UNCOMPRESSED

from ...family_bench import QUESTION, FamilyBench, clip, make_bench, picture

TOKEN = 28
ROWS, COLS = 3, 4
SIZE = (ROWS * TOKEN, COLS * TOKEN)
TOLERANCE = 1e-5


@pytest.fixture
def bench() -> FamilyBench:
    return make_bench("video_llama_3")


def mostly_still(changes: list[list[tuple[int, int]]], seed: int = 0) -> Any:
    """A clip whose frame u differs from the one before in the given tokens alone."""
    generator = np.random.default_rng(seed)
    frames = [generator.integers(0, 256, (*SIZE, 3), dtype=np.uint8)]
    for places in changes:
        frame = frames[-1].copy()
        for row, col in places:
            frame[row * TOKEN : (row + 1) * TOKEN, col * TOKEN : (col + 1) * TOKEN] ^= 128
        frames.append(frame)
    return clip(len(frames), pixels=np.stack(frames))


CHANGES = [[(1, 2)], [], [(0, 0), (2, 3), (2, 1)]]
KEPT = [
    [(row, col) for row in range(ROWS) for col in range(COLS)],
    [(1, 2)],
    [(0, 0)],
    [(0, 0), (2, 1), (2, 3)],
]
"""Of the first frame all, of one alike in all the first token."""


def test_kept_tokens_stand_where_they_changed(bench):
    inputs = bench.inputs(mostly_still(CHANGES))
    tokens = bench.map(inputs, 4)
    assert tokens.unit_grid.tolist() == [[ROWS, COLS]] * 4
    assert tokens.tokens_per_unit.tolist() == [len(places) for places in KEPT]
    for unit, places in enumerate(KEPT):
        at = tokens.visual[tokens.unit_tokens(unit)]
        assert list(zip(tokens.row[at].tolist(), tokens.col[at].tolist(), strict=True)) == places
        shown = tokens.unit_picture(np.arange(tokens.n_visual, dtype=float), unit)
        assert np.isnan(shown).sum() == ROWS * COLS - len(places), "dropped places are empty"
    assert tokens.unit_shown_seconds == pytest.approx([0.0, 3.3, 6.7, 10.0])


def test_features_are_those_of_the_kept_places(bench):
    """Encoded without the map: every place of every frame, by the model's own encoder and projector."""
    inputs = bench.inputs(mostly_still(CHANGES))
    tokens = bench.map(inputs, 4)
    base = bench.model.model
    with torch.no_grad():
        with hooks.visual_features(bench.model, tokens, ("projector", "vit")) as features:
            bench.model(**inputs)
        whole = base.get_video_features(
            inputs["pixel_values_videos"], inputs["video_grid_thw"], inputs["video_merge_sizes"]
        )
        (every,) = whole.pooler_output
        every = every.reshape(4, ROWS, COLS, -1).numpy()
        projected = base.projector(torch.from_numpy(features["vit"])).numpy()
    wanted = np.stack([every[unit][place] for unit, places in enumerate(KEPT) for place in places])
    assert np.abs(features["projector"] - wanted).max() <= TOLERANCE
    assert np.abs(projected - wanted).max() <= TOLERANCE, "the tower's states go through the projector"


def test_attention_on_units_of_unequal_size(bench):
    inputs = bench.inputs(mostly_still(CHANGES))
    tokens = bench.roles(inputs, 4)
    with torch.no_grad():
        with hooks.attention_rows(bench.model, tokens, rows=("question", "last")) as captured:
            bench.model(**inputs)
        attention = torch.stack(bench.eager(**inputs, output_attentions=True).attentions)[:, 0].numpy()
    for role in ("question", "last"):
        rows = attention[:, :, tokens.rows(role)].mean(axis=2)
        wanted = [
            rows[..., np.flatnonzero((tokens.unit == unit) & (tokens.row >= 0))].sum(-1) for unit in range(4)
        ]
        assert np.abs(captured.unit_mass(role) - np.stack(wanted, axis=-1)).max() <= TOLERANCE


def test_without_compression_every_token_stays(bench):
    still = mostly_still([[], []])
    arguments = bench.family.video_arguments(still)
    chat = bench.processor.apply_chat_template(
        [{"role": "user", "content": [{"type": "video"}, {"type": "text", "text": QUESTION}]}],
        add_generation_prompt=True,
    )
    given = {"videos": [np.moveaxis(still.pixels, -1, 1)], "return_tensors": "pt", **arguments}
    whole = dict(bench.processor(text=[chat], use_token_compression=False, **given))
    tokens = bench.map(whole, 3)
    assert tokens.tokens_per_unit.tolist() == [ROWS * COLS] * 3
    assert bench.family.notices(still, bench.model, whole) == []
    fewer = dict(bench.processor(text=[chat], **given))
    assert bench.map(fewer, 3).tokens_per_unit.tolist() == [ROWS * COLS, 1, 1]
    (notice,) = bench.family.notices(still, bench.model, fewer)
    assert notice.startswith("tokens_dropped: 22 of 36 ")


def test_the_family_without_compression_keeps_every_token(bench):
    still = mostly_still([[], []])
    every = dataclasses.replace(bench, family=UNCOMPRESSED)
    assert every.map(every.inputs(still), 3).tokens_per_unit.tolist() == [ROWS * COLS] * 3
    assert not UNCOMPRESSED.told_by_metadata, "an engine that is told metadata alone would compress"
    assert hooks.family_of(bench.model).name == "video_llama_3"


def test_a_batch_counts_dropped_tokens_off(bench):
    first, second = mostly_still(CHANGES), mostly_still([[(2, 0)]], seed=1)
    inputs = bench.batch([([first], (), QUESTION), ([second], (), QUESTION)])
    tokens = [bench.roles(inputs, count, row=row) for row, count in enumerate((4, 2))]
    assert tokens[1].tokens_per_unit.tolist() == [ROWS * COLS, 1]
    with torch.no_grad(), hooks.visual_features(bench.model, tokens, ("projector", "vit")) as features:
        bench.model(**inputs)
    for found, one in zip(features, (first, second), strict=True):
        alone = bench.inputs(one)
        with (
            torch.no_grad(),
            hooks.visual_features(bench.model, bench.map(alone, len(one)), ("projector", "vit")) as wanted,
        ):
            bench.model(**alone)
        for source in ("projector", "vit"):
            assert np.abs(found[source] - wanted[source]).max() <= TOLERANCE


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"video_compression_mask": None}, "placeholders"),
        ({"video_compression_mask": torch.ones(11, dtype=torch.bool)}, "11 entries"),
        ({"video_merge_sizes": torch.tensor([4])}, "does not divide"),
    ],
)
def test_a_mask_of_another_prompt_is_refused(bench, change, words):
    inputs = bench.inputs(mostly_still(CHANGES)) | change
    with pytest.raises(hooks.TokenMapError, match=words):
        bench.map(inputs, 4)


def test_frames_are_encoded_once_whatever_is_dropped(bench):
    """Dropping comes after encoding: in another order frames lose other tokens, and not their encodings."""
    plain, order = mostly_still(CHANGES), [3, 1, 1, 0]
    prompts = [bench.inputs(plain), bench.inputs(clip(4, pixels=plain.pixels[order]))]
    assert bench.map(prompts[1], 4).tokens_per_unit.tolist() == [12, 3, 1, 1]
    expected = [bench.run(one).logits for one in prompts]
    found = []
    with hooks.reuse_units(bench.model) as reuse:
        for one, names in zip(prompts, ([0, 1, 2, 3], order), strict=True):
            with reuse.units(names):
                found.append(bench.run(one).logits)
    assert (reuse.encoded, reuse.reused) == (4, 4)
    for one, other in zip(expected, found, strict=True):
        assert float((one - other).abs().max()) <= TOLERANCE


def test_images_are_not_merged(bench):
    inputs = bench.inputs(images=[picture((56, 84))])
    tokens = bench.map(inputs)
    assert tokens.unit_grid.tolist() == [[4, 6]], "a token is one patch of 14 pixels"
    with torch.no_grad():
        with hooks.visual_features(bench.model, tokens, ("projector", "vit")) as features:
            bench.model(**inputs)
        projected = bench.model.model.projector(torch.from_numpy(features["vit"])).numpy()
    assert np.abs(projected - features["projector"]).max() <= TOLERANCE


def test_times_that_rounding_makes_one(bench):
    close = clip(4, fps=100.0, stride=3)  # 0.00, 0.03, 0.06, 0.09 s
    inputs = bench.inputs(close)
    tokens = bench.map(inputs, 4)
    assert tokens.unit_shown_seconds == pytest.approx([0.0, 0.0, 0.1, 0.1])
    (fault,) = hooks.layout_faults(bench.family, bench.model, inputs, tokens, close)
    assert fault.startswith("shared_times: 2 of 3 ")


def test_long_times_and_the_comma_belong_to_the_unit(bench):
    late = clip(3, fps=0.001, stride=100)  # 0, 100,000 and 200,000 s
    tokens = bench.map(bench.inputs(late), 3)
    assert tokens.unit_shown_seconds.tolist() == [0.0, 100_000.0, 200_000.0]
    between = (np.arange(len(tokens)) > tokens.visual[0]) & (np.arange(len(tokens)) < tokens.visual[-1])
    assert set(tokens.kind[between].tolist()) == {int(Kind.VIDEO), int(Kind.TIMESTAMP)}


def test_pixel_limits(bench):
    """The upper limit is of the whole video, the lower of each frame."""
    size = {"shortest_edge": 784, "longest_edge": 784 * 1024}
    assert bench.family.pixels_left(32, size) == 784 * 32
    limit = bench.family.frame_limit(784 * 6, 8, size)
    frames = clip(8, (112, 112))
    inputs = bench.processor(
        text=["<video>"],
        videos=[np.moveaxis(frames.pixels, -1, 1)],
        size=limit,
        return_tensors="pt",
        **bench.family.video_arguments(frames),
    )
    _, rows, cols = inputs["video_grid_thw"][0].tolist()
    assert rows * cols / 4 <= 6
    assert bench.family.shown_size(bench.processor, inputs) == (rows * 14, cols * 14)
