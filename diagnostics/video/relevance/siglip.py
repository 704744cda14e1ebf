"""SigLIP: probability that a frame and the question belong together.

As in WFS-SB: sigmoid(scale cos + bias), with the checkpoint's own scale and bias, so that scores lie in
[0, 1]. The text is padded to the full length, as the model was trained. SigLIP 2 checkpoints of fixed
resolution load too.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.special import expit
from transformers import AutoModel

from diagnostics.video.relevance.checkpoint import identity, load_pretrained
from diagnostics.video.relevance.clip import DualEncoder
from diagnostics.video.relevance.config import ScorerConfig

__all__ = ["Siglip", "load"]

DEFAULT = "google/siglip-so400m-patch14-384"


class Siglip(DualEncoder):
    """Two towers into one space; scores are probabilities."""

    padding = "max_length"

    def scores(self, features: Float[np.ndarray, "n dim"], text: str) -> Float[np.ndarray, " n"]:
        """Probability of a match with `text`."""
        scale = float(self.model.logit_scale.detach().float().exp())
        return expit(scale * super().scores(features, text) + float(self.model.logit_bias.detach()))


def load(config: ScorerConfig) -> Siglip:
    """The SigLIP checkpoint of `config`.

    Raises:
        ScorerUnavailableError: see `load_pretrained`.
    """
    path = config.path or DEFAULT
    model, processor = load_pretrained(AutoModel, config, path, "siglip")
    return Siglip("siglip", model, processor, config, f"1-{identity(model, path)}")
