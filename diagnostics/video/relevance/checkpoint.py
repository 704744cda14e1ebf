"""Loading a vision-language checkpoint of transformers, and what its weights are known by.

Weights come from safetensors only and no code from the checkpoint is run.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoProcessor
from transformers.utils import logging as transformers_logging

from diagnostics.errors import ScorerUnavailableError
from diagnostics.video.relevance.config import ScorerConfig

__all__ = ["identity", "load_pretrained"]


def load_pretrained(auto: Any, config: ScorerConfig, path: str, kind: str) -> tuple[Any, Any]:
    """Model (in evaluation mode, on its device) and processor.

    Args:
        auto: the class whose `from_pretrained` loads the model.
        kind: the `model_type` that the checkpoint must have.

    Raises:
        ScorerUnavailableError: it is not here and cannot be fetched, is of another kind, or lacks weights.
    """
    common: dict[str, Any] = {
        "revision": config.revision,
        "local_files_only": config.local_files_only,
        "trust_remote_code": False,
    }
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        found = AutoConfig.from_pretrained(path, **common).model_type
        if found != kind:
            raise _unavailable(config, path, f"it is a checkpoint of {found}, not of {kind}.")
        model, report = auto.from_pretrained(path, use_safetensors=True, output_loading_info=True, **common)
        processor = AutoProcessor.from_pretrained(path, **common)
        device = _device(config.device)
        model.to(device)
    except (OSError, ValueError, ImportError, RuntimeError, SafetensorError) as error:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise _unavailable(config, path, said) from error
    finally:
        if shown:
            transformers_logging.enable_progress_bar()
    if missing := sorted(report["missing_keys"]):
        # The library would fill them with random numbers and warn.
        raise _unavailable(config, path, f"its weights lack {len(missing)} tensors, {missing[0]} first.")
    return model.eval(), processor


def identity(model: Any, path: str) -> str:
    """The hub's commit, or a hash of the names, sizes and dates of a folder's files."""
    commit = getattr(model.config, "_commit_hash", None)
    if commit:
        return str(commit)
    facts = [(f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in sorted(Path(path).iterdir())]
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _device(name: str) -> torch.device:
    if name != "auto":
        return torch.device(name)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def _unavailable(config: ScorerConfig, path: str, said: str) -> ScorerUnavailableError:
    return ScorerUnavailableError(
        f"The relevance scorer {config.name!r} cannot be loaded from {path!r}: {said}",
        remedy=(
            "Give sampling.scorer.path a folder with the checkpoint; or compute scores elsewhere and set "
            "sampling.scorer.name=file; or set sampling.scorer.name=novelty, which needs no weights and "
            "ignores the question; or take a sampler without scores (uniform, differential)."
        ),
        path=path if Path(path).exists() else None,
    )
