"""What every architecture family has to say about itself: one class, one file a family.

Four things: where the parts of the model are; how a prompt lays out a video; what the processor is told
about selected frames; what encodes pictures. The defaults hold for language models of ordinary decoder
layers native in transformers; a family overrides what differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from hooks.errors import UnsupportedModelError
from hooks.families._sources import Kind, Source, array

__all__ = ["Encoder", "Family", "Shown", "restore_order"]


class Shown(Protocol):
    """The frames a prompt shows, as far as a processor has to be told of them."""

    @property
    def frame_indices(self) -> Int[np.ndarray, " slot"]:
        """Source frame of each slot in presentation order; -1 for a synthetic picture."""

    @property
    def shown_seconds(self) -> Float[np.ndarray, " slot"]:
        """The time the model is told for each slot."""

    @property
    def source_fps(self) -> float:
        """Average frame rate of the source."""

    @property
    def source_frames(self) -> int:
        """Frames the source holds."""

    @property
    def source_seconds(self) -> float:
        """Duration of the source."""

    def __len__(self) -> int: ...


_CLOCK_TOLERANCE = 5e-4
"""Seconds within which `index / fps` counts as the shown time (container time bases round to 1 ms)."""


@dataclass(frozen=True)
class Encoder:
    """A method of the joining module that turns pixels into what enters the language model.

    Attributes:
        method: its name on `Family.base`.
        kinds: what it encodes; some families encode videos as images.
        apart: True where each kind that a prompt holds has a call of its own, in the order of `kinds`; False
            where one call takes them all.
    """

    method: str
    kinds: tuple[Kind, ...]
    apart: bool = False


@dataclass(frozen=True)
class Family:
    """One architecture family.

    Attributes:
        name: the family's name, also that of its file.
        model_types: values of `model.config.model_type` it answers to.
        text_config_key: name of the language model's configuration inside the model's.
        attention_road: how attention is computed: through transformers' attention interface, or by the
            model's own code calling `torch.nn.functional.scaled_dot_product_attention`
            (`hooks.sdpa_intercept`).
        auto_class: transformers' class that loads its checkpoints with the output head.
        tells_time: True where the prompt writes a time before each unit of a video.
        told_by_metadata: True where `video_metadata` alone tells an engine with a processor of its own (vLLM)
            the frames' times, and its prompts were found to be those of transformers.
        takes_pixel_cap: True where the processor knows `cap_pixels_per_frame`.
        least_frames: fewest frames the processor takes; a single frame is given so many times.
        units_alone: True where the vision tower looks at one temporal unit at a time, whose encodings can be
            used again among other units.
        most_videos: videos one prompt can hold; None for any number.
        equal_videos: True where the processor stacks all videos of a call: equally many frames each.
        mixes_kinds: False where a prompt holds videos or images and never both.
        hears: True where the sound of a video can be woven into its prompt.
        size_with_call: True where the processor's class has limits of its own for videos that win over its
            video processor's: they are then given with each call.
        size_rules: what of the video processor sizes frames beside its `size`, by name, for the manifest.
    """

    name: str
    model_types: tuple[str, ...]
    text_config_key: str = "text_config"
    attention_road: Literal["interface", "sdpa"] = "interface"
    auto_class: str = "AutoModelForImageTextToText"
    tells_time: bool = False
    told_by_metadata: bool = False
    takes_pixel_cap: bool = False
    least_frames: int = 1
    units_alone: bool = False
    most_videos: int | None = None
    equal_videos: bool = False
    mixes_kinds: bool = True
    hears: bool = False
    size_with_call: bool = False
    size_rules: tuple[str, ...] = ()

    # Where the parts of the model are

    def base(self, model: Any) -> Any:
        """The module that joins vision tower and language model, without the output head."""
        return model.model if hasattr(model, "lm_head") else model

    def text_model(self, model: Any) -> Any:
        """The language model: embeddings in, hidden states out."""
        return self.base(model).language_model

    def layers(self, model: Any) -> nn.ModuleList:
        """Decoder layers in order."""
        return self.text_model(model).layers

    def attention_layers(self, model: Any) -> tuple[int, ...]:
        """Decoder layers that attend: whose rows can be captured. Fewer than `layers` in hybrid models."""
        return tuple(range(len(self.layers(model))))

    def packs(self, model: Any) -> bool:
        """Whether several questions can follow one held prefix side by side in one row: every layer attends
        to all that lies behind, and a mask keeps the questions apart. Layers that carry a state or forget do
        not; code of a checkpoint's own is not known to.
        """
        if self.attention_road == "sdpa":
            return False
        types = getattr(self.text_model(model).config, "layer_types", None)
        return types is None or set(types) == {"full_attention"}

    def beside_stream(self, model: Any) -> str | None:  # noqa: ARG002 - families of such layers need it
        """What later layers read of earlier ones, or of the embeddings, beside the residual stream; None
        where nothing: then the input of a layer is all that layer and later ones know."""
        return None

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
        vision = getattr(model.config, "vision_config", None)
        return tuple(range(len(getattr(vision, "deepstack_visual_indexes", None) or ())))

    def attention(self, layer: Any) -> nn.Module:
        """The self-attention of one decoder layer."""
        return layer.self_attn

    def output_projection(self, attention: Any) -> nn.Linear:
        """The linear map from an attention module's heads, side by side, to its output."""
        return attention.o_proj

    def attention_norm(self, layer: Any) -> nn.Module | None:  # noqa: ARG002 - families with such norms need it
        """The norm of what attention adds to the stream; None where it is added as it is projected."""
        return None

    def stream_scale(self, layer: Any) -> float:  # noqa: ARG002 - likewise
        """What a decoder layer multiplies the whole stream by at its end."""
        return 1.0

    def capped(self, model: Any, logits: Tensor) -> Tensor:  # noqa: ARG002 - families that cap logits need it
        """What the output head's numbers become before they are the model's logits."""
        return logits

    @contextmanager
    def whole_prompt(self, model: Any) -> Iterator[None]:  # noqa: ARG002 - families that leave rows out need it
        """All layers compute all positions of a forward inside the block."""
        yield

    def vision(self, model: Any) -> Any:
        """The vision tower."""
        return self.base(model).vision_tower

    # How a prompt lays out a video

    def placeholders(self, model: Any) -> dict[Kind, int]:
        """Token ids that stand for visual (and audio) features in the prompt, by what they stand for."""
        config = model.config
        return {Kind.VIDEO: int(config.video_token_id), Kind.IMAGE: int(config.image_token_id)}

    def slots_per_unit(self, model: Any) -> int:  # noqa: ARG002 - families of frame pairs need it
        """Frames that share one temporal unit."""
        return 1

    def sources(
        self,
        model: Any,
        processor: Any,
        inputs: Mapping[str, Any],
        row: int,
        n_frames: int | Sequence[int] | None,
    ) -> list[Source]:
        """The videos and images of one sequence in prompt order, from what the processor returned.

        Args:
            processor: the processor, or its tokenizer alone.
            inputs: what the processor returned for the batch.
            row: which sequence of the batch.
            n_frames: frames given for each video of the sequence; None where nobody told.

        Raises:
            TokenMapError: the prompt is not laid out as this family's are.
        """
        raise NotImplementedError(f"{type(self).__name__} must say how a prompt lays out a video.")

    def two_way(
        self,
        model: Any,  # noqa: ARG002 - families whose pictures see what comes after them need these
        inputs: Mapping[str, Any],  # noqa: ARG002
        row: int,  # noqa: ARG002
    ) -> Int[np.ndarray, " position"] | None:
        """For each position of one sequence the block of it whose members all see one another in every layer,
        earlier and later ones; -1 where a position sees itself and what lies before it. None: so do all.
        """
        return None

    def grids(self, model: Any, inputs: Mapping[str, Any]) -> list[tuple[int, int, int]]:  # noqa: ARG002
        """(units, rows, columns) in patches before merging, of each video and then image of the batch."""
        found = [
            inputs[name] for name in ("video_grid_thw", "image_grid_thw") if inputs.get(name) is not None
        ]
        grids = np.concatenate([array(part) for part in found]) if found else np.empty((0, 3), np.int64)
        return [(int(units), int(rows), int(cols)) for units, rows, cols in grids]

    # What the processor is told about selected frames

    def video_arguments(self, shown: Shown) -> dict[str, Any]:
        """Keyword arguments for the processor's call beside one video's frames.

        Source indices and frame rate where they give the shown times, as every published pipeline passes
        them. Where they don't (variable frame rate, a start offset, a perturbed clock, blanks), the shown
        times themselves, in units of the source's frame period.
        """
        seconds, fps = shown.shown_seconds, shown.source_fps
        indices: np.ndarray = shown.frame_indices
        if np.any(indices < 0) or np.max(np.abs(indices / fps - seconds)) > _CLOCK_TOLERANCE:
            indices = seconds * fps
        metadata = {
            "fps": fps,
            "frames_indices": indices,
            "total_num_frames": shown.source_frames,
            "duration": shown.source_seconds,
        }
        return {"video_metadata": [metadata], "do_sample_frames": False}

    def size_limits(
        self, min_pixels: int | None, max_pixels: int | None, current: Mapping[str, int]
    ) -> dict[str, int]:
        """The video processor's `size` under pixel limits.

        Raises:
            UnsupportedModelError: frames of this family have one fixed size.
        """
        if min_pixels is not None or max_pixels is not None:
            raise UnsupportedModelError(
                f"Frames of {self.name} have the size of its processor, {dict(current)}.",
                remedy="Leave model.min_pixels and model.max_pixels at null.",
            )
        return dict(current)

    def frame_limit(self, frame_pixels: int, n_frames: int, current: Mapping[str, int]) -> dict[str, int]:
        """The video processor's `size` that gives each of `n_frames` frames at most `frame_pixels`.

        A family of one fixed size keeps it: it is the same for any number of frames.
        """
        del frame_pixels, n_frames
        return dict(current)

    def pixels_left(self, n_frames: int, current: Mapping[str, int]) -> int | None:
        """Pixels that `size` leaves each of `n_frames` frames; None where the number makes no difference."""
        del n_frames, current
        return None

    def shown_size(self, processor: Any, inputs: Mapping[str, Any]) -> tuple[int, int] | None:  # noqa: ARG002
        """Height and width that the first video's frames were resized to; None where the family resizes all
        frames to one size (`fixed_size`)."""
        return None

    def fixed_size(self, processor: Any) -> tuple[int, int] | None:
        """Height and width that what is shown of any frame (`middle_shown`) is resized to; None where frames
        keep their shape. Read off the video processor's `size` where that names both."""
        size = dict(getattr(processor.video_processor, "size", None) or {})
        height, width = size.get("height"), size.get("width")
        return None if height is None or width is None else (int(height), int(width))

    def sound_arguments(
        self,
        processor: Any,  # noqa: ARG002 - families that hear need these
        samples: Float[np.ndarray, " sample"],  # noqa: ARG002
    ) -> dict[str, Any]:
        """Keyword arguments for the processor's call that weave a video's sound into its prompt.

        Args:
            samples: one channel, at the rate of the processor's feature extractor.

        Raises:
            UnsupportedModelError: the family does not hear.
        """
        raise UnsupportedModelError(
            f"{self.name} does not hear the sound of a video.", remedy="Set model.sound=false."
        )

    def forward_arguments(self, model: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """What the model has to be told beside what the processor returned."""
        return {}

    def image_arguments(self, pictures: Sequence[np.ndarray]) -> dict[str, Any]:
        """Keyword arguments for the processor's call that shows several pictures in one prompt."""
        return {"images": list(pictures)}

    def middle_shown(self, processor: Any, height: int, width: int) -> tuple[int, int]:
        """Height and width of the middle of a frame that the processor leaves; all of it where it cuts
        nothing away."""
        del processor
        return height, width

    def notices(self, shown: Shown, model: Any, inputs: Mapping[str, Any] | None = None) -> list[str]:
        """What the family cannot express about these frames, each `kind: details`.

        Args:
            model: None where an engine with weights of its own asks.
            inputs: what the processor made of them, where it is at hand.
        """
        del shown, model, inputs
        return []

    def whole_seconds(self, model: Any) -> bool:  # noqa: ARG002 - families that cut them need it
        """Whether the times in a prompt are cut to whole seconds."""
        return False

    def positions(self, model: Any, inputs: Mapping[str, Any]) -> Int[Tensor, "axis one position"] | None:
        """Rotary positions of one prompt where the library's differ from those the family was trained with;
        None where they don't."""
        del model, inputs
        return None

    def context(self, model: Any) -> int:
        """How many positions the language model holds, by its configuration."""
        return int(model.config.get_text_config().max_position_embeddings)

    def model_positions(self, model: Any, inputs: Mapping[str, Any]) -> Int[Tensor, "axis one position"]:
        """Rotary positions as the model will use them; one axis where time, height and width share one."""
        if "position_ids" in inputs:
            return inputs["position_ids"]
        base = self.base(model)
        if not hasattr(base, "get_rope_index"):
            length = torch.as_tensor(inputs["input_ids"]).shape[-1]
            return torch.arange(length)[None, None]
        names = (
            *("input_ids", "mm_token_type_ids", "image_grid_thw", "video_grid_thw", "attention_mask"),
            "second_per_grid_ts",
        )
        found, _ = base.get_rope_index(**{name: inputs[name] for name in names if name in inputs})
        return found

    def largest_position(self, model: Any, inputs: Mapping[str, Any]) -> int:
        """The largest rotary position of the prompt."""
        return int(self.model_positions(model, inputs).max())

    def vision_pairs(self, vision: Any, grid: tuple[int, int, int]) -> int:
        """Pairs of query and key in the vision tower, over its layers: patches see those of their own frame.

        Args:
            vision: the vision tower's configuration.
            grid: units, rows and columns of patches.
        """
        units, rows, cols = grid
        depth = getattr(vision, "depth", None) or vision.num_hidden_layers
        return int(depth) * units * (rows * cols) ** 2

    def joined(self, name: str, inputs: Sequence[Mapping[str, Any]]) -> Tensor:
        """One input of several prompts, each prepared by itself, as the model takes it of them together.

        Inputs that have an entry a token are padded by others.

        Args:
            name: which input.
            inputs: of each prompt.
        """
        return torch.cat([one[name] for one in inputs])

    # What encodes pictures

    def encoders(self, model: Any) -> tuple[Encoder, ...]:  # noqa: ARG002
        """The methods of `base` that encode videos and images."""
        return (
            Encoder("get_video_features", (Kind.VIDEO,)),
            Encoder("get_image_features", (Kind.IMAGE,)),
        )

    def vit_tokens(
        self,
        model: Any,  # noqa: ARG002
        output: Any,  # noqa: ARG002
        arguments: Mapping[str, Any],  # noqa: ARG002
    ) -> Float[Tensor, "token dim"]:
        """Last hidden state of the vision tower, averaged over each merge window, in prompt order.

        Args:
            output: what the encoder returned.
            arguments: what it was called with, by name.

        Raises:
            UnsupportedModelError: the family does not say how patches become tokens.
        """
        raise UnsupportedModelError(
            f"Features of the vision tower are not mapped to tokens for {self.name}.",
            remedy="Use the features `projector` or `layer:N`.",
        )


def restore_order(
    values: Float[Tensor, "token dim"], order: Int[Tensor, " token"]
) -> Float[Tensor, "token dim"]:
    """Undo `values = original[order]`."""
    return values[torch.argsort(order.to(values.device))]
