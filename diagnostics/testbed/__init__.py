"""The testbed: a tiny Qwen3-VL that has learnt MiniHorizon, and how it is trained.

    python -m diagnostics.testbed --out FOLDER

trains it from scratch, on one core, from MiniHorizon's mp4 files, and writes an ordinary checkpoint.
"""
