"""A film made of known pictures, and small checkpoints of the real classes."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BlipConfig,
    BlipForImageTextRetrieval,
    BlipImageProcessor,
    BlipProcessor,
    CLIPConfig,
    CLIPImageProcessor,
    CLIPModel,
    CLIPProcessor,
    PreTrainedTokenizerFast,
    SiglipConfig,
    SiglipImageProcessor,
    SiglipModel,
    SiglipProcessor,
)

from diagnostics.data.items import Item
from diagnostics.video.index import VideoIndex
from diagnostics.video.relevance.cache import SignalCache

WORDS = ["<pad>", "<unk>", "<s>", "</s>", "?", "what", "colour", "is", "the",
         "lesion", "in", "left", "right", "a", "of", "red", "blue"]  # fmt: skip
SIZE = {"height": 16, "width": 16}


class Film:
    """Random pictures as the reader would give them; counts what was read."""

    def __init__(self, path: Path, count: int, seed: int = 0) -> None:
        path.write_bytes(b"film" * count)
        self.path, self.count = path, count
        coarse = np.random.default_rng(seed).integers(0, 256, (count, 4, 6, 3), dtype=np.uint8)
        self.pixels = coarse.repeat(8, axis=1).repeat(8, axis=2)
        self.reads: list[int] = []
        self.reader, self.max_side = "pyav", None

    @property
    def index(self) -> VideoIndex:
        return VideoIndex(
            path=str(self.path), pts=np.arange(self.count), time_base=Fraction(1), fps=1.0,
            seconds=np.arange(self.count, dtype=float), duration=float(self.count), width=48, height=32,
            rotation=0, codec="h264", container="mov", reliable=True, key_pts=np.array([0]),
            key_seek=np.array([0]), open_gop=False, header_frames=self.count,
        )  # fmt: skip

    def read(self, path: Path, frames: np.ndarray) -> np.ndarray:
        assert path == self.path
        self.reads.append(len(frames))
        return self.pixels[frames]

    def item(self, name: str = "one", question: str = "what colour is the lesion ?") -> Item:
        return Item(name, self.path, self.path.name, question, options=("red", "blue"))


@pytest.fixture
def film(tmp_path: Path) -> Film:
    return Film(tmp_path / "film.mp4", 30)


@pytest.fixture
def cache(tmp_path: Path) -> SignalCache:
    return SignalCache(tmp_path / "cache")


def a_tokenizer(**special: str) -> PreTrainedTokenizerFast:
    words = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 2), ("</s>", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token="<pad>",
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        **special,
    )


def clip(folder: Path) -> Path:
    layer = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = CLIPConfig(
        text_config={**layer, "vocab_size": len(WORDS), "max_position_embeddings": 9, "pad_token_id": 0,
                     "bos_token_id": 2, "eos_token_id": 3},
        vision_config={**layer, "image_size": 16, "patch_size": 8},
        projection_dim=12,
    )  # fmt: skip
    images = CLIPImageProcessor(size={"shortest_edge": 16}, crop_size=SIZE)
    CLIPModel(config).save_pretrained(folder)
    CLIPProcessor(images, a_tokenizer()).save_pretrained(folder)
    return folder


def siglip(folder: Path) -> Path:
    layer = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = SiglipConfig(
        text_config={**layer, "vocab_size": len(WORDS), "max_position_embeddings": 9, "pad_token_id": 0,
                     "bos_token_id": 2, "eos_token_id": 3, "projection_size": 16},
        vision_config={**layer, "image_size": 16, "patch_size": 8},
    )  # fmt: skip
    model = SiglipModel(config)
    with torch.no_grad():
        model.logit_scale.fill_(2.0)
        model.logit_bias.fill_(-1.0)
    model.save_pretrained(folder)
    tokenizer = a_tokenizer(model_input_names=["input_ids"])
    SiglipProcessor(SiglipImageProcessor(size=SIZE), tokenizer).save_pretrained(folder)
    return folder


def blip(folder: Path) -> Path:
    """With a vision tower that sees: the library initialises its weights at 1e-10."""
    layer = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = BlipConfig(
        text_config={**layer, "vocab_size": len(WORDS), "max_position_embeddings": 9, "pad_token_id": 0,
                     "bos_token_id": 2, "eos_token_id": 3, "sep_token_id": 3, "encoder_hidden_size": 16,
                     "projection_dim": 12},
        vision_config={**layer, "image_size": 16, "patch_size": 8, "initializer_range": 0.3},
        image_text_hidden_size=12, projection_dim=12,
    )  # fmt: skip
    model = BlipForImageTextRetrieval(config)
    with torch.no_grad():
        model.itm_head.weight.mul_(20)
    model.save_pretrained(folder)
    BlipProcessor(BlipImageProcessor(size=SIZE), a_tokenizer()).save_pretrained(folder)
    return folder


MAKERS: dict[str, Callable[[Path], Path]] = {"clip": clip, "siglip": siglip, "blip_itm": blip}


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("scorers")
    made = {}
    for name, make in MAKERS.items():
        torch.manual_seed(0)
        made[name] = make(root / name)
    return made
