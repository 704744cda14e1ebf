"""Where a token's evidence lies in the last layer's states: a token activation map, without any attention.

    with hooks.token_activation(model, tokens, target=answer) as found:
        model(**inputs)
    found.tokens  # [token], not negative
    found.units   # [unit]

After TAM (Li et al., ICCV 2025, arXiv 2506.23270, section 3.2): the logit of the target token is read at
every visual position of the last layer, after the final norm. Earlier tokens of the text leave their own
maps in these states; their mean, weighted by the target's positive logit at each of them, is subtracted,
scaled by least squares. What is left is cut at zero. The paper's rank-Gaussian filter over a picture's
neighbours is left out: it smooths a picture for the eye and does not change what a unit is worth.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from hooks.errors import CaptureError, SelfCheckError, UnsupportedModelError
from hooks.families import family_of
from hooks.token_map import TokenMap

__all__ = ["TokenActivation", "token_activation"]

_CHUNK = 256
"""Context tokens whose maps are formed at once."""


@dataclass(eq=False)
class TokenActivation:
    """The map of one target token; readable once the `with` block has ended."""

    map: TokenMap
    target: int
    interference: float = float("nan")
    """The least-squares scale of what was subtracted; 0 where no earlier token speaks for the target."""
    _tokens: Float[np.ndarray, " token"] | None = None

    @property
    def tokens(self) -> Float[np.ndarray, " token"]:
        """The map over visual tokens, in the order of the `token` axis, float32."""
        if self._tokens is None:
            raise CaptureError(
                "The map has not been made yet.",
                remedy="Run the forward inside the with block, read after it.",
            )
        return self._tokens

    @property
    def units(self) -> Float[np.ndarray, " unit"]:
        """The sum over each temporal unit's tokens."""
        return self.map.unit_sum(self.tokens)


@contextmanager
def token_activation(
    model: Any, tokens: TokenMap, target: int, *, context: Int[np.ndarray, " position"] | None = None
) -> Iterator[TokenActivation]:
    """Map the evidence for one token of the vocabulary during the forward inside the `with` block.

    Args:
        model: a loaded model of a known family, with its output head.
        tokens: the map of the one prompt that is run.
        target: the token's id, such as that of the right option's letter.
        context: positions of the earlier text whose own maps are taken out; None: question and options.
            Each token of the vocabulary counts once, the target itself not at all.

    Raises:
        CaptureError: a target outside the vocabulary, a position outside the prompt, a second forward.
        UnsupportedModelError: the model has no output head.
        SelfCheckError: when the block ends, no forward over the whole prompt was seen.
    """
    family = family_of(model)
    head = family.head(model)
    if head is None:
        raise UnsupportedModelError(
            f"{type(model).__name__} has no output head.", remedy="Load the model for conditional generation."
        )
    if not 0 <= target < head.weight.shape[0]:
        raise CaptureError(
            f"Token {target} lies outside a vocabulary of {head.weight.shape[0]}.",
            remedy="Give a token's id.",
        )
    places = (
        np.concatenate([tokens.question, tokens.options])
        if context is None
        else np.asarray(context, dtype=np.int64)
    )
    if len(places) and not (places.min() >= 0 and places.max() < len(tokens)):
        raise CaptureError(
            f"Context positions {places.min()} to {places.max()} of {len(tokens)}.", remedy="Count from 0."
        )
    found = TokenActivation(tokens, target)

    @torch.no_grad()
    def after(_module: nn.Module, _args: tuple, output: Any) -> None:
        states = output.last_hidden_state if hasattr(output, "last_hidden_state") else output[0]
        if states.shape[1] != len(tokens):  # steps of decoding
            return
        if states.shape[0] != 1 or found._tokens is not None:
            raise CaptureError(
                "A batch, or a second forward, passed one token activation.",
                remedy="Open a new hooks.token_activation for each prompt.",
            )
        values, found.interference = _activation(states[0], head, tokens, target, places)
        found._tokens = values

    handle = family.text_model(model).register_forward_hook(after)
    try:
        yield found
    finally:
        handle.remove()
    if found._tokens is None:
        raise SelfCheckError(
            "No forward over the whole prompt was seen.",
            remedy="Run one inside the with block, without a cache.",
        )


def _activation(
    states: Float[Tensor, "position dim"],
    head: nn.Linear,
    tokens: TokenMap,
    target: int,
    context: Int[np.ndarray, " position"],
) -> tuple[Float[np.ndarray, " token"], float]:
    """The target's map less the weighted mean of the context's, and the scale of what was subtracted."""
    visual = states[torch.from_numpy(tokens.visual).to(states.device)].float()
    own = _logits(visual, head, [target])[:, 0].clamp(min=0)
    ids = tokens.input_ids[context]
    _, first = np.unique(ids, return_index=True)
    first = np.array([place for place in np.sort(first).tolist() if ids[place] != target], dtype=np.int64)
    if not len(first):
        return own.cpu().numpy(), 0.0
    at = states[torch.from_numpy(context[first]).to(states.device)].float()
    weights = _logits(at, head, [target])[:, 0].clamp(min=0)
    if not float(weights.sum()) > 0:
        return own.cpu().numpy(), 0.0
    weights = weights / weights.sum()
    mean = torch.zeros_like(own)
    for start in range(0, len(first), _CHUNK):
        chosen = slice(start, start + _CHUNK)
        maps = _logits(visual, head, ids[first[chosen]].tolist()).clamp(min=0)
        mean += maps @ weights[chosen]
    power = float(mean @ mean)
    scale = float(own @ mean) / power if power > 0 else 0.0
    return (own - scale * mean).clamp(min=0).cpu().numpy(), scale


def _logits(states: Float[Tensor, "place dim"], head: nn.Linear, ids: list[int]) -> Float[Tensor, "place id"]:
    """Chosen rows of the output head alone: a vocabulary of 150,000 at every patch would be gigabytes."""
    index = torch.tensor(ids, device=head.weight.device)
    logits = states @ head.weight[index].float().T.to(states.device)
    return logits if head.bias is None else logits + head.bias[index].float().to(states.device)
