"""Loading a checkpoint: model, processor, and what must be known of both.

Weights come from safetensors only and no code from the checkpoint is run.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForImageTextToText, AutoProcessor

from diagnostics.errors import ModelError
from diagnostics.models.config import ModelConfig
from diagnostics.models.families import family_of

__all__ = ["LoadedModel", "load_model"]


@dataclass(frozen=True)
class LoadedModel:
    """A model ready to be asked.

    Attributes:
        model: in evaluation mode, on its device or devices.
        processor: tokenizer and video processor, with the pixel limits applied.
        family: the prompt adapter (`diagnostics.models.families`).
        config: what was asked for.
        context: tokens the model can hold.
        trained_positions: the largest position it was trained on.
        provenance: what the manifest keeps: class, commit, dtype, sizes, pixel limits.
    """

    model: Any
    processor: Any
    family: ModuleType
    config: ModelConfig
    context: int
    trained_positions: int
    provenance: dict[str, Any]

    @property
    def device(self) -> torch.device:
        """Where inputs go: the device of the first layer's embeddings."""
        return self.model.get_input_embeddings().weight.device


def load_model(config: ModelConfig) -> LoadedModel:
    """Load the checkpoint that `config` names.

    Raises:
        ModelError: it cannot be found, has no weights in safetensors, or its architecture has no adapter.
    """
    path = _resolve(config)
    common: dict[str, Any] = {
        "revision": config.revision,
        "local_files_only": config.local_files_only,
        "trust_remote_code": False,
    }
    try:
        architecture = AutoConfig.from_pretrained(path, **common)
        family = family_of(architecture.model_type)
        model: Any = AutoModelForImageTextToText.from_pretrained(
            path,
            dtype=config.dtype if config.dtype == "auto" else getattr(torch, config.dtype),
            attn_implementation=config.attention,
            device_map=config.device_map,
            use_safetensors=True,
            **common,
        )
        processor = AutoProcessor.from_pretrained(path, **common)
    except (OSError, ValueError, ImportError) as error:
        raise ModelError(
            f"Cannot load {path!r}: {_first_line(error)}",
            remedy="Give model.path a folder with safetensors weights, or a hub id this machine can reach.",
            path=path if Path(path).exists() else None,
        ) from error
    model.eval()
    if config.device_map is None:
        model.to(_device(config.device))
    video_processor = processor.video_processor
    size = dict(video_processor.size)
    video_processor.size = family.size_limits(config.min_pixels, config.max_pixels, size)
    text = model.config.get_text_config()
    context = int(text.max_position_embeddings)
    return LoadedModel(
        model=model,
        processor=processor,
        family=family,
        config=config,
        context=context,
        trained_positions=config.trained_positions or context,
        provenance=_provenance(model, video_processor, path),
    )


def _resolve(config: ModelConfig) -> str:
    if config.path == "tiny":
        from diagnostics.models.tiny import tiny_checkpoint

        return str(tiny_checkpoint(config.seed))
    return str(Path(config.path).expanduser()) if Path(config.path).expanduser().exists() else config.path


def _device(name: str) -> torch.device:
    if name != "auto":
        return torch.device(name)
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def _provenance(model: Any, video_processor: Any, path: str) -> dict[str, Any]:
    text = model.config.get_text_config()
    return {
        "path": path,
        "class": type(model).__name__,
        "commit": getattr(model.config, "_commit_hash", None),
        "dtype": str(model.dtype).removeprefix("torch."),
        "parameters": model.num_parameters(),
        "layers": text.num_hidden_layers,
        "heads": text.num_attention_heads,
        "key_value_heads": text.num_key_value_heads,
        "device": str(model.device),
        "video_size": {name: int(value) for name, value in dict(video_processor.size).items() if value},
        "generation": {"do_sample": False},
    }


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
