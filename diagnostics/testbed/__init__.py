"""The testbed: a tiny Qwen3-VL that has learnt MiniHorizon, and how it is trained.

    python -m diagnostics.testbed --out FOLDER

trains it from scratch, on one core, from MiniHorizon's mp4 files, and writes an ordinary checkpoint.
"""

from pathlib import Path

__all__ = ["WEIGHTS"]

WEIGHTS = Path(__file__).resolve().parent / "weights"
"""The folder of the trained checkpoint that is shipped: `model=tiny`."""
