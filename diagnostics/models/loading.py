"""Loading a checkpoint: model, processor, and what must be known of both.

Weights come from safetensors only, and no code from the checkpoint is run unless the configuration names that
checkpoint as trusted (`ModelConfig.trust_remote_code`). How it would generate by its own settings (sampling,
repetition penalties) is put aside, so that decoding is plainly greedy.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from transformers import AutoConfig, AutoProcessor, GenerationConfig
from transformers.utils import logging as transformers_logging

from diagnostics.errors import CheckpointError, ConfigError
from diagnostics.models.config import ModelConfig
from diagnostics.models.prompting import video_size
from diagnostics.models.remote_code import refuse_code_elsewhere, trusts_code
from diagnostics.own_source import source_sha256
from hooks.errors import FamilyError, UnsupportedModelError
from hooks.families import Family, family_at, family_named, use_family
from hooks.kept_logits import keep_logits

__all__ = [
    "LoadedModel",
    "Prompting",
    "checkpoint_path",
    "load_model",
    "load_prompting",
    "outline_model",
]


@dataclass(frozen=True)
class LoadedModel:
    """A model ready to be asked.

    Attributes:
        model: in evaluation mode, on its device or devices.
        processor: tokenizer and video processor, with the pixel limits applied.
        family: the architecture family (`hooks.families`).
        config: what was asked for.
        context: tokens the model can hold.
        trained_positions: the largest position it was trained on.
        provenance: what the manifest keeps: class, commit, dtype, sizes, pixel limits.
    """

    model: Any
    processor: Any
    family: Family
    config: ModelConfig
    context: int
    trained_positions: int
    provenance: dict[str, Any]

    @property
    def device(self) -> torch.device:
        """Where inputs go: the device of the first layer's embeddings."""
        return self.model.get_input_embeddings().weight.device


@dataclass(frozen=True)
class Prompting:
    """What an engine that loads weights by itself needs of a checkpoint.

    Attributes:
        path: its folder or hub id.
        architecture: transformers' configuration of it.
        family: the architecture family (`hooks.families`).
        processor: tokenizer and video processor, with the pixel limits applied.
    """

    path: str
    architecture: Any
    family: Family
    processor: Any


def load_model(config: ModelConfig) -> LoadedModel:
    """Load the checkpoint that `config` names.

    Raises:
        CheckpointError: it cannot be found, has no weights in safetensors, needs code of its own, its
            architecture has no adapter, or the device is not there.
    """
    path = checkpoint_path(config)
    with _no_bars(), _refusals(config, path):
        model, processor, family = _from_pretrained(config, path)
        model.eval()
        if config.device_map is None:
            model.to(_device(config.device))
    return _loaded(config, path, model, processor, family)


def outline_model(config: ModelConfig) -> LoadedModel:
    """The checkpoint's architecture and processor without its weights, which are neither read nor needed:
    parameters have shape and type, on torch's meta device, and no memory.

    Raises:
        CheckpointError: see `load_model`; whether the weights are there is not looked at.
    """
    path, common = checkpoint_path(config), _common(config)
    with _no_bars(), _refusals(config, path):
        architecture, family = _architecture(config, path)
        dtype = getattr(torch, config.dtype) if config.dtype != "auto" else architecture.dtype
        with torch.device("meta"):
            model = _outline(config, family, architecture, dtype or torch.float32)
        processor = AutoProcessor.from_pretrained(path, **common)
    return _loaded(config, path, model.eval(), processor, family)


def _loaded(config: ModelConfig, path: str, model: Any, processor: Any, family: Family) -> LoadedModel:
    """Pixel limits and generation settings applied, and what is known of the model."""
    if config.family is not None:
        use_family(model, family)
    keep_logits(model)
    _set_pixel_limits(config, family, processor)
    put_aside = _generate_greedily(model, processor.tokenizer)
    context = family.context(model)
    return LoadedModel(
        model=model,
        processor=processor,
        family=family,
        config=config,
        context=context,
        trained_positions=config.trained_positions or context,
        provenance=_provenance(model, processor, family, path)
        | {
            "family": f"{type(family).__module__}.{type(family).__qualname__}",
            "family_sha256": source_sha256(type(family).__module__),
            "generation": put_aside,
            "remote_code": trusts_code(config),
        },
    )


def load_prompting(config: ModelConfig) -> Prompting:
    """What prompts are written with, without the model: for an engine that loads the weights by itself.

    Raises:
        CheckpointError: see `load_model`.
    """
    path = checkpoint_path(config)
    with _no_bars(), _refusals(config, path):
        architecture, family = _architecture(config, path)
        processor = AutoProcessor.from_pretrained(path, **_common(config))
    _set_pixel_limits(config, family, processor)
    return Prompting(path=path, architecture=architecture, family=family, processor=processor)


def _set_pixel_limits(config: ModelConfig, family: Family, processor: Any) -> None:
    try:
        limits = family.size_limits(config.min_pixels, config.max_pixels, video_size(processor))
    except UnsupportedModelError as error:
        raise ConfigError(error.problem, remedy=error.remedy) from error
    if "longest_edge" in limits and limits["longest_edge"] < limits.get("shortest_edge", 0):
        raise ConfigError(
            f"The upper pixel limit {limits['longest_edge']} is below the lower, {limits['shortest_edge']}.",
            remedy="Raise model.max_pixels, or lower model.min_pixels.",
        )
    if limits:
        processor.video_processor.size = limits


def _architecture(config: ModelConfig, path: str) -> tuple[Any, Family]:
    """transformers' configuration of a checkpoint and its family, before anything large is read."""
    refuse_code_elsewhere(config, path)
    architecture = AutoConfig.from_pretrained(path, **_common(config))
    family = _family(config, architecture)
    if config.sound and not family.hears:
        raise ConfigError(
            f"{config.name} ({family.name}) does not hear the sound of a video.",
            remedy="Set model.sound=false.",
        )
    return architecture, family


def _family(config: ModelConfig, architecture: Any) -> Family:
    """The family of a checkpoint's architecture: the one asked for by its path, or that of its model type."""
    try:
        if config.family is None:
            return family_named(architecture.model_type)
        family = family_at(config.family)
    except UnsupportedModelError as error:
        raise CheckpointError(error.problem, remedy=error.remedy) from error
    except FamilyError as error:
        raise ConfigError(error.problem, remedy=error.remedy) from error
    if architecture.model_type not in family.model_types:
        raise ConfigError(
            f"model.family={config.family} answers to {', '.join(family.model_types)}; {config.path!r} is a "
            f"{architecture.model_type!r}.",
            remedy="Add the type to its model_types if it is laid out alike, or take another family.",
        )
    return family


def _auto_class(family: Family) -> Any:
    return getattr(transformers, family.auto_class)


def _outline(config: ModelConfig, family: Family, architecture: Any, dtype: torch.dtype) -> Any:
    """The model of a configuration, with whatever weights; of one that holds several models, the family's."""
    wanted = _auto_class(family)
    options: dict[str, Any] = {"dtype": dtype, "attn_implementation": config.attention}
    if hasattr(wanted, "from_config"):
        return wanted.from_config(architecture, trust_remote_code=trusts_code(config), **options)
    parts = [architecture, *(getattr(architecture, name) for name in architecture.sub_configs)]
    (own,) = (part for part in parts if isinstance(part, wanted.config_class))
    return wanted._from_config(own, **options)


def _common(config: ModelConfig) -> dict[str, Any]:
    """What is told whichever part of a checkpoint is read."""
    return {
        "revision": config.revision,
        "local_files_only": config.local_files_only,
        "trust_remote_code": trusts_code(config),
    }


def _from_pretrained(config: ModelConfig, path: str) -> tuple[Any, Any, Family]:
    common = _common(config)
    _, family = _architecture(config, path)
    both: Any = _auto_class(family).from_pretrained(
        path,
        dtype=config.dtype if config.dtype == "auto" else getattr(torch, config.dtype),
        attn_implementation=config.attention,
        device_map=config.device_map,
        use_safetensors=True,
        output_loading_info=True,
        **common,
    )
    model, report = both
    if missing := sorted(report["missing_keys"]):
        # The library would fill them with random numbers and warn.
        raise CheckpointError(
            f"The weights in {path!r} lack {len(missing)} tensors, {missing[0]} first.",
            remedy="Copy or convert the checkpoint again; an adapter has to be merged into its base first.",
        )
    return model, AutoProcessor.from_pretrained(path, **common), family


@contextmanager
def _refusals(config: ModelConfig, path: str) -> Iterator[None]:
    """What transformers and torch say about a checkpoint that cannot be loaded, with what to do."""
    try:
        yield
    except (OSError, ValueError, ImportError, RuntimeError, SafetensorError) as error:
        message = str(error)
        if "custom code" in message or "trust_remote_code" in message:
            problem = f"{path!r} needs code of its own, which is not run."
            remedy = (
                "Use a checkpoint whose architecture is native in transformers, or read its code and then "
                f"name it: model.trust_remote_code={config.path}"
            )
        elif config.trust_remote_code and "scaled_dot_product_attention" in message:
            problem = f"Cannot load {path!r}: {_first_line(error)}"
            remedy = "Set model.attention=eager: what its code calls decides (docs/families.md)."
        else:
            problem = f"Cannot load {path!r}: {_first_line(error)}"
            remedy = (
                "Give model.path a folder with safetensors weights, or a hub id this machine can reach; "
                f"model.device is {config.device!r}."
            )
        folder = path if Path(path).exists() else None
        raise CheckpointError(problem, remedy=remedy, path=folder) from error


@contextmanager
def _no_bars() -> Iterator[None]:
    """Without the library's progress bars, which break through ours; its warnings still come."""
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()


def _generate_greedily(model: Any, tokenizer: Any) -> dict[str, Any]:
    """Leave only token ids in the model's generation settings; returns what decoding is, for the manifest.

    Qwen's checkpoints come with sampling and a repetition penalty, which bends even the likeliest token:
    it counts the letters that the prompt's own options hold.
    """
    own = model.generation_config
    pad = own.pad_token_id if own.pad_token_id is not None else tokenizer.pad_token_id
    model.generation_config = GenerationConfig(
        bos_token_id=own.bos_token_id, eos_token_id=own.eos_token_id, pad_token_id=pad
    )
    kept = {*model.generation_config.to_diff_dict(), "transformers_version", "_from_model_config"}
    put_aside = {name: value for name, value in own.to_diff_dict().items() if name not in kept}
    return {"do_sample": False, "put_aside": put_aside}


def checkpoint_path(config: ModelConfig) -> str:
    """The folder, or the hub id, that `model.path` stands for; the bundled models' are made where need be.

    Raises:
        CheckpointError: there is no such folder.
    """
    with _no_bars():
        return _resolve(config)


def _resolve(config: ModelConfig) -> str:
    if config.path == "tiny":
        from diagnostics.testbed import WEIGHTS

        return str(WEIGHTS)
    if config.path == "tiny_random":
        from diagnostics.models.tiny import tiny_checkpoint

        return str(tiny_checkpoint(config.seed))
    if config.path.startswith("miniature/"):
        from diagnostics.models.miniatures import miniature_checkpoint

        return str(miniature_checkpoint(config.path.removeprefix("miniature/"), config.seed))
    if config.path.startswith("tiny/"):
        from diagnostics.testbed.surgery import named_checkpoint

        return str(named_checkpoint(config.path))
    folder = Path(config.path).expanduser()
    if folder.exists():
        return str(folder)
    if folder.is_absolute() or config.path.startswith(".") or config.path.count("/") > 1:
        raise CheckpointError(
            f"There is no folder {str(folder)!r}.",
            remedy="Give model.path a checkpoint's folder, or a hub id such as Qwen/Qwen3-VL-8B-Instruct.",
        )
    return config.path


def _device(name: str) -> torch.device:
    if name != "auto":
        return torch.device(name)
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def _provenance(model: Any, processor: Any, family: Family, path: str) -> dict[str, Any]:
    video = processor.video_processor
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
        "video_size": video_size(processor) | {name: getattr(video, name) for name in family.size_rules},
    }


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
