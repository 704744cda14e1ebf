"""The checkpoint that surgery begins with, and the folder that it ends in."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoProcessor, Qwen3VLForConditionalGeneration

__all__ = ["RECORD", "code_digest", "digest_of", "open_source", "write_checkpoint"]

RECORD = "surgery.json"
"""What was done, beside the weights."""


def code_digest() -> str:
    """SHA-256 of this package: what was made by other code is made again."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def digest_of(source: Path) -> str:
    """SHA-256 of everything in a checkpoint's folder that decides what it computes."""
    digest = hashlib.sha256()
    for path in sorted(source.iterdir()):
        if path.suffix in (".safetensors", ".json", ".jinja") and path.name != "scores.json":
            digest.update(path.name.encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def open_source(source: Path) -> Qwen3VLForConditionalGeneration:
    """The model in float32, ready to be read or edited."""
    return Qwen3VLForConditionalGeneration.from_pretrained(
        source, dtype=torch.float32, local_files_only=True, use_safetensors=True
    ).eval()


def write_checkpoint(
    folder: Path, source: Path, model: Qwen3VLForConditionalGeneration, record: Mapping[str, Any]
) -> None:
    """An ordinary checkpoint with the processor of `source`, and `surgery.json`."""
    model.save_pretrained(folder)
    AutoProcessor.from_pretrained(source, local_files_only=True).save_pretrained(folder)
    written = {"source_sha256": digest_of(source), **record}
    (folder / RECORD).write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
