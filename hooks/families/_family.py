"""What every architecture family has to say about itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from einops import reduce
from jaxtyping import Float, Int
from torch import Tensor, nn

from hooks.errors import UnsupportedModelError

__all__ = ["Family", "VisionIds"]


@dataclass(frozen=True)
class VisionIds:
    """Token ids of the placeholders and of the delimiters around them."""

    video: int
    image: int
    start: int
    end: int


@dataclass(frozen=True)
class Family:
    """One architecture family: where its parts are, and how its prompt lays out a video.

    The defaults are the layout shared by the Qwen-VL models native in transformers; a family that
    departs from it overrides the method that differs.

    Attributes:
        name: the family's name, also that of its file.
        model_types: values of `model.config.model_type` it answers to.
        unit_delimited: True where each temporal unit of a video stands between its own pair of
            vision delimiters, False where one pair encloses the whole video.
        tells_time: True where the prompt writes a time before each unit of a video.
        text_config_key: name of the language model's configuration inside the model's.
    """

    name: str
    model_types: tuple[str, ...]
    unit_delimited: bool
    tells_time: bool
    text_config_key: str = "text_config"

    def token_ids(self, model: Any) -> VisionIds:
        """Placeholder and delimiter ids, from the model's configuration."""
        config = model.config
        return VisionIds(
            video=config.video_token_id,
            image=config.image_token_id,
            start=config.vision_start_token_id,
            end=config.vision_end_token_id,
        )

    def merge_size(self, model: Any) -> int:
        """Patches along each side that become one visual token."""
        return int(model.config.vision_config.spatial_merge_size)

    def slots_per_unit(self, model: Any) -> int:
        """Frames that share one temporal unit."""
        return int(model.config.vision_config.temporal_patch_size)

    def base(self, model: Any) -> Any:
        """The module that joins vision tower and language model, without the output head."""
        return model.model if hasattr(model, "lm_head") else model

    def text_model(self, model: Any) -> Any:
        """The language model: embeddings in, hidden states out."""
        return self.base(model).language_model

    def layers(self, model: Any) -> nn.ModuleList:
        """Decoder layers in order."""
        return self.text_model(model).layers

    def final_norm(self, model: Any) -> nn.Module:
        """The norm between the last decoder layer and the output head."""
        return self.text_model(model).norm

    def embedding(self, model: Any) -> nn.Embedding:
        """The input embeddings of text tokens."""
        return self.text_model(model).embed_tokens

    def head(self, model: Any) -> nn.Linear | None:
        """What turns normed states into logits; None for a model loaded without it."""
        return getattr(model, "lm_head", None)

    def deepstack_layers(self, model: Any) -> tuple[int, ...]:
        """Decoder layers after which visual features are added to the stream; () where none are."""
        return tuple(range(len(getattr(model.config.vision_config, "deepstack_visual_indexes", ()))))

    def attention(self, layer: Any) -> nn.Module:
        """The self-attention of one decoder layer."""
        return layer.self_attn

    def output_projection(self, attention: Any) -> nn.Linear:
        """The linear map from an attention module's heads, side by side, to its output."""
        return attention.o_proj

    def vision(self, model: Any) -> Any:
        """The vision tower, merger included."""
        return self.base(model).visual

    def vit_tokens(
        self,
        vision: Any,  # noqa: ARG002 - families with windowed attention need it
        hidden: Float[Tensor, "patch dim"],
        grid_thw: Int[Tensor, "source 3"],  # noqa: ARG002 - likewise
        merge_size: int,
    ) -> Float[Tensor, "token dim"]:
        """Last hidden state before the merger, averaged over each merge window, in prompt order.

        Processors order patches (unit, row, column, row within window, column within window), so a
        merge window is `merge_size ** 2` neighbours.
        """
        return reduce(hidden.float(), "(token window) dim -> token dim", "mean", window=merge_size**2)


def refuse_unknown(model_type: str, known: list[str]) -> UnsupportedModelError:
    """The error for a model type no family file answers to."""
    return UnsupportedModelError(
        f"Model type {model_type!r} has no family in hooks/families.",
        remedy=f"Known: {', '.join(sorted(known))}. To add one, write hooks/families/<name>.py.",
    )


def restore_order(
    values: Float[Tensor, "token dim"], order: Int[Tensor, " token"]
) -> Float[Tensor, "token dim"]:
    """Undo `values = original[order]`."""
    return values[torch.argsort(order.to(values.device))]
