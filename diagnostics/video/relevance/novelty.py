"""Novelty: what is in a frame and not in the frames around it. Needs no weights and ignores the question.

So that samplers by relevance run offline, on the embedded default. A frame is averaged down to 8 x 8
cells in CIELAB; the frame's median colour is subtracted, so that a change of light or of the tissue's
hue counts little. A frame's score is the largest distance of one of its cells from the running median of
that cell over nine candidates: something small and coloured that comes and goes within four candidates
stands out, whatever lasts longer does not. Scores are the same for every question on a video.

How well it retrieves MiniHorizon's lesions is in docs/sampling.md. It is a baseline for detection by
appearance, not for relevance: it has no idea what was asked.
"""

from __future__ import annotations

import numpy as np
from einops import rearrange
from jaxtyping import Float, UInt8
from PIL import Image
from scipy.ndimage import median_filter

from diagnostics.video.relevance.config import ScorerConfig

__all__ = ["Novelty", "cielab", "load"]

_CELLS, _WINDOW = 8, 9
_TO_XYZ = np.array(
    [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]], dtype=np.float32
)
"""sRGB's primaries (IEC 61966-2-1)."""
_WHITE = np.array([0.9505, 1.0, 1.089], dtype=np.float32)


class Novelty:
    """See the module."""

    name, version = "novelty", "1"
    uses_question = False

    def features(self, frames: UInt8[np.ndarray, "n h w 3"]) -> Float[np.ndarray, "n 192"]:
        """Lab of 8 x 8 cells, less the frame's median cell, float32."""
        small = [Image.fromarray(f).resize((_CELLS, _CELLS), Image.Resampling.BOX) for f in frames]
        cells = rearrange(cielab(np.stack([np.asarray(f) for f in small])), "n h w lab -> n (h w) lab")
        return rearrange(cells - np.median(cells, axis=1, keepdims=True), "n cell lab -> n (cell lab)")

    def scores(self, features: Float[np.ndarray, "n 192"], text: str) -> Float[np.ndarray, " n"]:  # noqa: ARG002
        """Largest distance, in Lab, of a cell from its running median; `text` is ignored."""
        usual = median_filter(features, size=(_WINDOW, 1), mode="nearest")
        apart = rearrange(features - usual, "n (cell lab) -> n cell lab", lab=3)
        return np.linalg.norm(apart, axis=2).max(axis=1).astype(np.float64)


def cielab(pixels: UInt8[np.ndarray, "*shape 3"]) -> Float[np.ndarray, "*shape 3"]:
    """CIE 1976 L*a*b* of sRGB values, white point D65; L from 0 to 100."""
    given = pixels.astype(np.float32) / 255
    linear = np.where(given <= 0.04045, given / 12.92, ((given + 0.055) / 1.055) ** 2.4)
    xyz = linear @ _TO_XYZ.T / _WHITE
    root = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    x, y, z = root[..., 0], root[..., 1], root[..., 2]
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=-1).astype(np.float32)


def load(config: ScorerConfig) -> Novelty:  # noqa: ARG001
    """The scorer; nothing is read."""
    return Novelty()
