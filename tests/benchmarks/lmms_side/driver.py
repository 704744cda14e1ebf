"""Runs in lmms-eval's environment: `python driver.py JOB.json TOLD.json`. See `../lmms_eval.py`.

Asks the job's documents as one lmms-eval task and writes the seconds spent in `generate_until`, and each
item's reply, prompt hash and frames. Imports nothing of this project.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["FORCE_QWENVL_VIDEO_READER"] = "decord"

import hashlib
import json
import sys
import tempfile
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

TASK = """\
task: minihorizon
dataset_path: json
dataset_kwargs:
  data_files: {{test: "{docs}"}}
test_split: test
output_type: generate_until
doc_to_visual: !function here.visual
doc_to_text: !function here.text
doc_to_target: answer
process_results: !function here.results
generation_kwargs: {{max_new_tokens: {new_tokens}, temperature: 0, do_sample: false}}
metric_list:
  - {{metric: exact, aggregation: mean, higher_is_better: true}}
"""
FUNCTIONS = """\
from asked_in_order import items


def visual(doc):
    items.append(doc["item"])  # items are prepared one after another: the prompt that follows is this one's
    return [doc["video"]]


def text(doc, lmms_eval_specific_kwargs=None):
    return doc["prompt"]


def results(doc, results):
    return {"exact": float(results[0].strip() == doc["answer"])}
"""


class Told:
    """What is noted while lmms-eval asks: the prompts as they are prepared, seconds, replies by document."""

    def __init__(self) -> None:
        self.prompts: list[dict[str, Any]] = []
        self.seconds = 0.0
        self.replies: dict[int, str] = {}


def watch(model_class: type, told: Told, asked: list[str]) -> None:
    """Note prompts and time; take the system turn back."""
    template, generate = model_class._apply_chat_template, model_class.generate_until

    def without_system(self: Any, batch: list[list[dict]], **options: Any) -> Any:
        plain = [[message for message in messages if message["role"] != "system"] for messages in batch]
        return template(self, plain, **options)

    def timed(self: Any, requests: list[Any]) -> Any:
        self.processor = Watched(self.processor, told.prompts)
        asked.clear()
        started = time.perf_counter()
        replies = generate(self, requests)
        told.seconds += time.perf_counter() - started
        for request, reply in zip(requests, replies, strict=True):
            told.replies[request.args[3]] = getattr(reply, "text", reply)
        return replies

    model_class._apply_chat_template, model_class.generate_until = without_system, timed


class Watched:
    """A processor that notes the hash and the frames of each prompt it makes."""

    def __init__(self, processor: Any, prompts: list[dict[str, Any]]) -> None:
        self._processor, self._prompts = processor, prompts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._processor, name)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        frames = [int(frame) for frame in options["video_metadata"][0]["frames_indices"]]
        inputs = self._processor(*arguments, **options)
        digest = hashlib.sha256(options["text"][0].encode())
        digest.update(np.asarray(inputs["input_ids"][0], dtype=np.int64).tobytes())
        self._prompts.append({"prompt_sha256": digest.hexdigest(), "frames": frames})
        return inputs


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    torch.set_num_threads(job["threads"])
    loading = transformers.Qwen3VLForConditionalGeneration.from_pretrained.__func__

    def in_float32(cls: Any, *arguments: Any, **options: Any) -> Any:
        return loading(cls, *arguments, **(options | {"dtype": "float32"}))

    transformers.Qwen3VLForConditionalGeneration.from_pretrained = classmethod(in_float32)

    from lmms_eval import evaluator, models
    from lmms_eval.tasks import TaskManager

    told = Told()
    notes: Any = types.ModuleType("asked_in_order")
    notes.items = []
    sys.modules[notes.__name__] = notes
    watch(models.get_model("qwen3_vl", force_simple=job["simple"]), told, notes.items)
    with tempfile.TemporaryDirectory() as folder:
        docs = Path(folder) / "docs.json"
        docs.write_text("\n".join(json.dumps(doc) for doc in job["docs"]))
        (Path(folder) / "here.py").write_text(FUNCTIONS)
        (Path(folder) / "minihorizon.yaml").write_text(TASK.format(docs=docs, new_tokens=job["new_tokens"]))
        arguments = {
            "pretrained": job["checkpoint"],
            "device_map": "cpu",
            "attn_implementation": "sdpa",
            "max_num_frames": job["frames"],
            "min_pixels": job["pixels"],
            "max_pixels": job["pixels"],
        }
        evaluator.simple_evaluate(
            model="qwen3_vl",
            model_args=",".join(f"{name}={value}" for name, value in arguments.items()),
            tasks=["minihorizon"],
            batch_size=1,
            device="cpu",
            force_simple=job["simple"],
            task_manager=TaskManager("INFO", include_path=folder),
            bootstrap_iters=0,
        )
    prompts = dict(zip(notes.items, told.prompts, strict=True))
    items = {}
    for document, reply in told.replies.items():
        name = job["docs"][document]["item"]
        items[name] = {"reply": reply, **prompts[name]}
    Path(sys.argv[2]).write_text(json.dumps({"seconds": told.seconds, "items": items}))


if __name__ == "__main__":
    main()
