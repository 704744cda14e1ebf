"""LLaVA-NeXT-Video's prompt with Llama's real tokenizer, whose words carry the space before them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

import hooks
from diagnostics.models.miniatures import miniature

from ..family_bench import make_bench

pytestmark = pytest.mark.system

QUESTION = "Which instrument is in the lower-left corner at 3.5 s: 钳子 or a snare?"
OPTIONS = ("A. Biopsy forceps", "B. Snare é")


def test_question_and_options_are_found(llama2_tokenizer_folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(llama2_tokenizer_folder, padding_side="left")
    tokenizer.add_tokens(["<video>", "<image>"], special_tokens=True)
    processor = miniature("llava_next_video").processor(tokenizer)
    model = make_bench("llava_next_video").model
    ids = {name: getattr(model.config, name) for name in ("video_token_index", "image_token_index")}
    text = f"USER: <video>\n{QUESTION}\n" + "\n".join(OPTIONS) + "\nAnswer with the letter. ASSISTANT:"
    frames = np.zeros((4, 3, 84, 84), np.uint8)
    inputs = processor(text=[text], videos=[frames], return_tensors="pt", do_sample_frames=False)
    try:
        model.config.video_token_index = tokenizer.convert_tokens_to_ids("<video>")
        model.config.image_token_index = tokenizer.convert_tokens_to_ids("<image>")
        tokens = hooks.token_map(model, processor, inputs, question=QUESTION, options=OPTIONS, n_frames=4)
    finally:
        for name, value in ids.items():
            setattr(model.config, name, value)
    assert tokenizer.decode(tokens.input_ids[tokens.question]) == QUESTION
    assert tokenizer.decode(tokens.input_ids[tokens.options]) == "".join(OPTIONS)
    assert tokens.n_units == 4
    assert "ASSISTANT" in tokens.describe(tokenizer)
