"""Tokens of a stretch of text, whatever the tokenizer does with spaces and bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from hooks.text_spans import TokenText

CORPUS = ["What colour is the lesion in this video? A. white B. deep green USER ASSISTANT"] * 3


def _sentencepiece() -> PreTrainedTokenizerFast:
    """As Llama's: words carry the space before them, and a text's first space is dropped in decoding."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=480, special_tokens=special, show_progress=False)
    words = [word for line in CORPUS for word in line.split()]
    tokenizer.train_from_iterator(words, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="</s>")


def _byte_level() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


TOKENIZERS = {"sentencepiece": _sentencepiece(), "byte_level": _byte_level()}


@pytest.fixture(params=list(TOKENIZERS))
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerFast:
    return TOKENIZERS[request.param]


@pytest.mark.parametrize("wanted", ["lesion", "A. white", "é 中 end", "USER: What"])
def test_the_tokens_of_a_text_carry_it(tokenizer, wanted):
    text = "USER: What colour is the lesion?\nA. white é 中 end"
    ids = tokenizer.encode(text, add_special_tokens=False)
    found = TokenText.decode(tokenizer, ids)
    assert found.text.strip() == text
    tokens = found.tokens(*found.find(wanted))
    assert wanted in tokenizer.decode(ids[tokens[0] : tokens[-1] + 1])
    shorter = (
        tokenizer.decode(ids[tokens[0] + 1 : tokens[-1] + 1]),
        tokenizer.decode(ids[tokens[0] : tokens[-1]]),
    )
    assert not any(wanted in one for one in shorter), "no token too many"


@settings(max_examples=40, derandomize=True, deadline=None)
@given(st.text(st.sampled_from("ab Wlesion.:\né中🙂"), min_size=1, max_size=30))
@pytest.mark.parametrize("name", list(TOKENIZERS))
def test_pieces_make_the_whole(name, text):
    tokenizer = TOKENIZERS[name]
    ids = tokenizer.encode(text, add_special_tokens=False)
    found = TokenText.decode(tokenizer, ids)
    assert found.text.removeprefix(" " if name == "sentencepiece" else "") == text
    assert found.spans[0, 0] == 0
    assert found.spans[-1, 1] == len(found.text)
    assert (np.diff(found.spans[:, 0]) >= 0).all()


def test_a_cut_text_keeps_the_space_before_its_first_word():
    tokenizer = TOKENIZERS["sentencepiece"]
    ids = tokenizer.encode("What colour", add_special_tokens=False)
    assert tokenizer.decode(ids) == "What colour"
    assert TokenText.decode(tokenizer, ids).text == " What colour"
