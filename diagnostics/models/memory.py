"""Exhausted memory: telling it from other errors, and freeing what can be freed."""

from __future__ import annotations

import gc

import torch

__all__ = ["free_memory", "out_of_memory"]


def out_of_memory(error: BaseException) -> bool:
    """Whether the device or the host had no memory left."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return "not enough memory" in str(error) or "can't allocate memory" in str(error)


def free_memory() -> None:
    """Give unused memory back. Outside the handler of the error: its traceback holds the tensors."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
