"""Asks vLLM: runs inside the environment of `environment.py`, and imports nothing of this project.

    python ask.py FOLDER

FOLDER holds `request.json` and the frames, one .npy file an item; `answers.json` is written beside them.
The engine runs in this process, so that its end is the engine's end.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

# Before vLLM and torch are imported: they are read then.
os.environ |= {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    # One thread, on no core in particular: threads bound to cores that are shared wait for each other.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}

import numpy as np
import torch
import transformers
import vllm


def main(folder: Path) -> None:
    """Answer the request in `folder`."""
    request = json.loads((folder / "request.json").read_text())
    started = time.monotonic()
    engine = vllm.LLM(
        request["checkpoint"],
        dtype="float32",
        enforce_eager=True,
        seed=0,
        max_model_len=request["context"],
        max_num_seqs=request["together"],
        limit_mm_per_prompt={"video": 1, "image": 0},
        # Without it vLLM wants nine tenths of the machine's memory to be free.
        kv_cache_memory_bytes=256 * 2**20,
        # Each video is processed anew: what a request gets does not depend on the ones before it.
        mm_processor_cache_gb=0,
        enable_prefix_caching=False,
    )
    loaded = time.monotonic()
    items = request["items"]
    prompts = [_prompt(folder, item) for item in items]
    settings = [_settings(item, request["max_new_tokens"]) for item in items]
    outputs = engine.generate(prompts, settings, use_tqdm=False)
    answered = time.monotonic()
    answers = {
        "versions": {module.__name__: module.__version__ for module in (vllm, torch, transformers)},
        "seconds": {"load": loaded - started, "answer": answered - loaded},
        "answers": [_answer(item, output) for item, output in zip(items, outputs, strict=True)],
    }
    (folder / "answers.json").write_text(json.dumps(answers))


def _prompt(folder: Path, item: dict[str, Any]) -> dict[str, Any]:
    frames = np.load(folder / item["frames"], allow_pickle=False)
    metadata = {**item["metadata"], "do_sample_frames": False}
    return {
        "prompt": item["text"],
        "multi_modal_data": {"video": [(frames, metadata)]},
        "mm_processor_kwargs": {"do_sample_frames": False},
    }


def _settings(item: dict[str, Any], max_new_tokens: int) -> vllm.SamplingParams:
    return vllm.SamplingParams(
        temperature=0, max_tokens=max_new_tokens, logprob_token_ids=item["letter_ids"] or None
    )


def _answer(item: dict[str, Any], output: Any) -> dict[str, Any]:
    (reply,) = output.outputs
    first = reply.logprobs[0] if reply.logprobs else {}
    return {
        "prompt_token_ids": list(output.prompt_token_ids),
        "token_ids": list(reply.token_ids),
        "text": reply.text,
        "letter_logprobs": [first[number].logprob for number in item["letter_ids"]],
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
