"""Tiny random models of every family's real class: to try a pipeline on before a checkpoint is at hand.

One file a family, named by its `model_type`, with a module constant `MINIATURE`. `model=miniature
model.path=miniature/internvl` writes one to the cache as an ordinary checkpoint and loads it like any other.
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

from diagnostics.errors import CheckpointError
from diagnostics.models.made import made_once
from diagnostics.models.miniatures._miniature import Miniature
from diagnostics.strict import near_match

__all__ = ["Miniature", "miniature", "miniature_checkpoint", "miniatures"]


def miniatures() -> tuple[str, ...]:
    """The model types there is a miniature of."""
    return tuple(sorted(name for _, name, _ in pkgutil.iter_modules(__path__) if not name.startswith("_")))


def miniature(model_type: str) -> Miniature:
    """The miniature of a model type.

    Raises:
        CheckpointError: there is none.
    """
    if model_type not in miniatures():
        raise CheckpointError(
            f"There is no miniature of {model_type!r}.", remedy=near_match(model_type, list(miniatures()))
        )
    return importlib.import_module(f"{__name__}.{model_type}").MINIATURE


def miniature_checkpoint(model_type: str, seed: int = 0) -> Path:
    """The folder of a miniature's checkpoint, made if it is not in the cache yet."""
    wanted = miniature(model_type)
    tokenizer = wanted.tokenizer()
    processor = wanted.processor(tokenizer)
    recipe = {
        "config": wanted.config(tokenizer).to_dict(),
        "processor": processor.to_dict(),
        "tokenizer": tokenizer.backend_tokenizer.to_str(),
        "template": processor.chat_template,
        "seed": seed,
    }

    def write(folder: Path) -> None:
        model, made = wanted.make(seed)
        model.generation_config.eos_token_id = tokenizer.eos_token_id
        model.generation_config.pad_token_id = tokenizer.pad_token_id
        model.save_pretrained(folder)
        made.save_pretrained(folder)

    return made_once(f"miniature-{model_type}", recipe, write)
