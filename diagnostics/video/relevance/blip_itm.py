"""BLIP image-text matching: probability that a frame and the question match.

The default of AKS (BLIP large there, from LAVIS) and, as BLIP-2, of WFS-SB: softmax of the ITM head. The text
attends to the picture's patches, so that a question cannot be scored from stored features; all
questions of a video are scored in one pass, each picture going through the vision tower once. Features are
the first (class) token of the vision tower, as WFS-SB takes it for BLIP.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from einops import repeat
from jaxtyping import Float, UInt8
from transformers import BlipForImageTextRetrieval

from diagnostics.video.relevance.checkpoint import identity, load_pretrained
from diagnostics.video.relevance.config import ScorerConfig

__all__ = ["BlipItm", "load"]

DEFAULT = "Salesforce/blip-itm-large-coco"


class BlipItm:
    """The vision tower, the text encoder that looks at it, and the matching head."""

    name = "blip_itm"
    uses_question = True

    def __init__(self, model: Any, processor: Any, config: ScorerConfig, version: str) -> None:
        self.version = version
        self.model, self.processor, self.batch = model, processor, config.batch

    def features(self, frames: UInt8[np.ndarray, "n h w 3"]) -> Float[np.ndarray, "n dim"]:
        """The class token of each frame, float32."""
        return self.score_texts(frames, [])[1]

    @torch.inference_mode()
    def score_texts(
        self, frames: UInt8[np.ndarray, "n h w 3"], texts: Sequence[str]
    ) -> tuple[Float[np.ndarray, "text n"], Float[np.ndarray, "n dim"]]:
        """Probability of a match of each frame with each text, and the frames' class tokens."""
        features = np.empty((len(frames), self.model.config.vision_config.hidden_size), np.float32)
        scores = np.empty((len(texts), len(frames)), np.float32)
        prompts = [self._prompt(text) for text in texts]
        for start in range(0, len(frames), self.batch):
            part = slice(start, min(start + self.batch, len(frames)))
            pixels = self.processor.image_processor(list(frames[part]), return_tensors="pt")["pixel_values"]
            seen = self.model.vision_model(pixels.to(self.model.device, self.model.dtype)).last_hidden_state
            features[part] = seen[:, 0].float().cpu().numpy()
            for row, prompt in enumerate(prompts):
                scores[row, part] = self._matches(seen, prompt)
        return scores, features

    def _prompt(self, text: str) -> dict[str, torch.Tensor]:
        limit = self.model.config.text_config.max_position_embeddings
        inputs = self.processor.tokenizer([text], truncation=True, max_length=limit, return_tensors="pt")
        return {name: inputs[name].to(self.model.device) for name in ("input_ids", "attention_mask")}

    def _matches(
        self, seen: Float[torch.Tensor, "n patch dim"], prompt: dict[str, torch.Tensor]
    ) -> Float[np.ndarray, " n"]:
        rows = {name: repeat(tensor, "1 token -> n token", n=len(seen)) for name, tensor in prompt.items()}
        read = self.model.text_encoder(
            **rows,
            encoder_hidden_states=seen,
            encoder_attention_mask=torch.ones(seen.shape[:2], dtype=torch.long, device=seen.device),
        ).last_hidden_state
        match: np.ndarray = self.model.itm_head(read[:, 0]).float().softmax(-1)[:, 1].cpu().numpy()
        return match


def load(config: ScorerConfig) -> BlipItm:
    """The BLIP ITM checkpoint of `config`.

    Raises:
        ScorerUnavailableError: see `load_pretrained`.
    """
    path = config.path or DEFAULT
    model, processor = load_pretrained(BlipForImageTextRetrieval, config, path, "blip")
    return BlipItm(model, processor, config, f"1-{identity(model, path)}")
