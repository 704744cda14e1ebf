"""CLIP: cosine of a frame's and the question's embedding.

As in ViLAMP (ViT-B/32 by default there and here), AKS and WFS-SB. The text is cut to what the model was
trained on (77 tokens). Features are the projected image embeddings.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from transformers import AutoModel

from diagnostics.video.relevance.checkpoint import identity, load_pretrained
from diagnostics.video.relevance.config import ScorerConfig

__all__ = ["DualEncoder", "load"]

DEFAULT = "openai/clip-vit-base-patch32"


class DualEncoder:
    """Two towers into one space; scores are cosines.

    Attributes:
        uses_question: True.
    """

    uses_question = True
    padding: str | bool = True

    def __init__(self, name: str, model: Any, processor: Any, config: ScorerConfig, version: str) -> None:
        self.name, self.version = name, version
        self.model, self.processor, self.batch = model, processor, config.batch

    @torch.inference_mode()
    def features(self, frames: UInt8[np.ndarray, "n h w 3"]) -> Float[np.ndarray, "n dim"]:
        """Projected image embeddings of at least one frame, not normalised, float32."""
        parts = []
        for start in range(0, len(frames), self.batch):
            inputs = self.processor(images=list(frames[start : start + self.batch]), return_tensors="pt")
            out = self.model.get_image_features(pixel_values=self._moved(inputs["pixel_values"]))
            parts.append(out.pooler_output.float().cpu().numpy())
        return np.concatenate(parts)

    def scores(self, features: Float[np.ndarray, "n dim"], text: str) -> Float[np.ndarray, " n"]:
        """Cosine of each frame with `text`."""
        question = self.text_feature(text)
        length = np.linalg.norm(features, axis=1) * np.linalg.norm(question)
        return (features @ question) / length

    @torch.inference_mode()
    def text_feature(self, text: str) -> Float[np.ndarray, " dim"]:
        """The text's embedding, cut to the model's length."""
        limit = self.model.config.text_config.max_position_embeddings
        inputs = self.processor.tokenizer(
            [text], padding=self.padding, truncation=True, max_length=limit, return_tensors="pt"
        )
        known = ("input_ids", "attention_mask")  # SigLIP's tokenizer gives no mask: it learned without
        given = {name: inputs[name].to(self.model.device) for name in known if name in inputs}
        feature: np.ndarray = self.model.get_text_features(**given).pooler_output[0].float().cpu().numpy()
        return feature

    def _moved(self, pixels: torch.Tensor) -> torch.Tensor:
        return pixels.to(self.model.device, self.model.dtype)


def load(config: ScorerConfig) -> DualEncoder:
    """The CLIP checkpoint of `config`.

    Raises:
        ScorerUnavailableError: see `load_pretrained`.
    """
    path = config.path or DEFAULT
    model, processor = load_pretrained(AutoModel, config, path, "clip")
    return DualEncoder("clip", model, processor, config, f"1-{identity(model, path)}")
