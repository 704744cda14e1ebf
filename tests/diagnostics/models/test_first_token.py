"""The token a prompt begins with, where both its chat template and its tokenizer may put it."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
from tokenizers.processors import TemplateProcessing

from diagnostics.models.loading import LoadedModel
from diagnostics.models.miniatures import miniature_checkpoint
from diagnostics.models.prompting import Form, prepare_inputs

from .conftest import a_question, load, uniform

BEGIN = "<|endoftext|>"


def ids(loaded: LoadedModel, *, in_template: bool, form: Form) -> list[int]:
    """The prompt's, as of a Llama tokenizer: it puts the first token before whatever it is given."""
    processor = copy.deepcopy(loaded.processor)
    tokenizer = processor.tokenizer
    tokenizer.bos_token = BEGIN
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{BEGIN} $A", special_tokens=[(BEGIN, tokenizer.bos_token_id)]
    )
    if in_template:
        processor.chat_template = "{{ bos_token }}" + processor.chat_template
    prompt = prepare_inputs(
        replace(loaded, processor=processor),
        a_question(),
        uniform(2, fps=10, source_frames=20),
        instruction="One letter.",
        max_new_tokens=4,
        form=form,
    )
    found: list[int] = prompt.inputs["input_ids"][0].tolist()
    assert found[0] == tokenizer.bos_token_id
    assert found.count(tokenizer.bos_token_id) == 1
    return found


@pytest.mark.parametrize("name", ["gemma4", "perception_lm", "llava_next_video"])
def test_a_prompt_begins_once_whoever_begins_it(name: str) -> None:
    loaded = load(miniature_checkpoint(name))
    forms: tuple[Form, ...] = ("video", "images", "nothing")
    for form in forms:
        by_tokenizer = ids(loaded, in_template=False, form=form)
        assert ids(loaded, in_template=True, form=form) == by_tokenizer
