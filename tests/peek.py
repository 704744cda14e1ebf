"""A checkpoint that brings its own code: `remote_code/modeling_peek.py`, a real processor, random weights."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from transformers import Qwen2_5_VLProcessor, Qwen2VLImageProcessor, Qwen2VLVideoProcessor

from diagnostics.models.miniatures._miniature import chat_template, make_tokenizer

__all__ = ["code_of_the_page", "peek_checkpoint", "peek_code"]

_CODE = Path(__file__).parent / "remote_code" / "modeling_peek.py"
_PAGE = Path(__file__).parents[1] / "docs" / "families.md"
_SPECIAL = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
_PIXELS = {"shortest_edge": 28 * 28, "longest_edge": 768 * 28 * 28}


def code_of_the_page() -> str:
    """`peek_family.py`, as docs/families.md has it."""
    (code,) = re.findall(r"```python\n(.*?)```", _PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    return str(code)


def peek_code() -> ModuleType:
    """The checkpoint's code as a module of this process, not through transformers."""
    if _CODE.stem not in sys.modules:
        spec = importlib.util.spec_from_file_location(_CODE.stem, _CODE)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[_CODE.stem] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[_CODE.stem]


def peek_checkpoint(folder: Path, *, by_hand: bool = False, seed: int = 0) -> Path:
    """Code, weights and processor in a folder. The same seed gives the same weights, whatever the attention.

    Args:
        by_hand: the attention does its softmax by hand.
    """
    code = peek_code()
    tokenizer = make_tokenizer(
        _SPECIAL, named={"image_token": "<|image_pad|>", "video_token": "<|video_pad|>"}
    )
    config = code.PeekConfig(
        vocab_size=-(-len(tokenizer) // 64) * 64,
        video_token_id=tokenizer.convert_tokens_to_ids("<|video_pad|>"),
        image_token_id=tokenizer.convert_tokens_to_ids("<|image_pad|>"),
        by_hand=by_hand,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = code.PeekForVideo(config)
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    processor = Qwen2_5_VLProcessor(
        image_processor=Qwen2VLImageProcessor(size=dict(_PIXELS)),
        video_processor=Qwen2VLVideoProcessor(size=dict(_PIXELS), cap_pixels_per_frame=False),
        tokenizer=tokenizer,
        chat_template=chat_template(
            video="<|vision_start|><|video_pad|><|vision_end|>",
            image="<|vision_start|><|image_pad|><|vision_end|>",
        ),
    )
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    (folder / _CODE.name).write_text(_CODE.read_text(encoding="utf-8"), encoding="utf-8")
    written: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    written["auto_map"] = {
        "AutoConfig": f"{_CODE.stem}.PeekConfig",
        "AutoModelForImageTextToText": f"{_CODE.stem}.PeekForVideo",
    }
    (folder / "config.json").write_text(json.dumps(written), encoding="utf-8")
    return folder
