"""Items a second of `+exp=benchmark` over lmms-eval's: same checkpoint, frames and prompts, one process.

    make lmms-env
    python tests/benchmarks/lmms_eval.py [--videos N] [--frames N] [--questions N] [--rounds R] [--threads T]

MiniHorizon and the bundled tiny model in float32 on the CPU, in turns: our hf engine; lmms-eval's `qwen3_vl`
as it comes (its chat class); the same with `force_simple`, its class that prepares one item ahead. Each of
theirs is run in an environment of its own (`lmms_side/driver.py`), as one task over the same items. Timed is
the asking: theirs inside `generate_until`, ours from the first group to the last record, the first video's
self-check included. Start-up is excluded on both sides.

lmms-eval loads in bfloat16 and puts a system turn before every prompt; the driver takes both back, so that
the prompts are the same, token for token, which is checked and printed (`same_prompts`), as are replies and
frames. What is timed is not judged here: it depends on the machine.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from engine import configured, wall
from rich.console import Console

from diagnostics.data import load_items
from diagnostics.data.items import Item
from diagnostics.models import loading
from diagnostics.models.loading import checkpoint_path
from diagnostics.models.prompting import question_text
from diagnostics.run import execute
from diagnostics.store.record_log import all_records
from diagnostics.store.records import Record

PYTHON = Path(__file__).resolve().parents[2] / ".cache" / "lmms-eval-0.7.3" / "bin" / "python"
DRIVER = Path(__file__).with_name("lmms_side") / "driver.py"
VARIANTS = ("chat", "simple")


def ours(arguments: argparse.Namespace) -> list[Record]:
    """The records of one whole run of ours."""
    with tempfile.TemporaryDirectory() as folder:
        config = configured(arguments, arguments.questions, True, Path(folder) / "run")
        execute(config, multirun=False, console=Console(quiet=True))
        records = all_records(Path(folder) / "run")
    if failed := [record for record in records if record.error is not None]:
        raise SystemExit(f"{len(failed)} items failed: {failed[0].error}")
    return records


def theirs(arguments: argparse.Namespace, asked: dict[str, Any], variant: str) -> dict[str, Any]:
    """What the driver says of one run of lmms-eval: seconds, and reply, prompt hash and frames by item."""
    with tempfile.TemporaryDirectory() as folder:
        job, told = Path(folder) / "job.json", Path(folder) / "told.json"
        job.write_text(json.dumps(asked | {"simple": variant == "simple", "threads": arguments.threads}))
        log = Path(folder) / "log"
        with log.open("w") as stream:
            code = subprocess.run(
                [arguments.python, DRIVER, job, told], stdout=stream, stderr=subprocess.STDOUT
            ).returncode
        if code:
            raise SystemExit(f"lmms-eval's run failed with status {code}:\n{log.read_text()[-3000:]}")
        return json.loads(told.read_text())


def job_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """What lmms-eval is to ask: the prompts' text and videos of the items that our run asks."""
    with tempfile.TemporaryDirectory() as folder:
        config = configured(arguments, arguments.questions, True, Path(folder))
    items: list[Item] = list(load_items(config.data.loader, config.data.parameters).items)
    return {
        "checkpoint": str(checkpoint_path(config.model)),
        "frames": arguments.frames,
        "new_tokens": config.backend.max_new_tokens,
        "pixels": arguments.side**2,
        "docs": [
            {
                "item": item.id,
                "video": str(item.video),
                "prompt": question_text(item, config.backend.instruction)[2],
                "answer": item.answer or "",
            }
            for item in items
        ],
    }


def compared(records: list[Record], told: dict[str, Any]) -> dict[str, int]:
    """How many items were asked the same and answered the same on both sides."""
    answers = told["items"]
    return {
        "items": len(records),
        "same_prompts": sum(answers[one.item_id]["prompt_sha256"] == one.prompt_sha256 for one in records),
        "same_frames": sum(
            answers[one.item_id]["frames"] == [slot.frame_index for slot in one.slots] for one in records
        ),
        "same_replies": sum(answers[one.item_id]["reply"].strip() == one.raw for one in records),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--videos", type=int, default=7, help="one more is asked, as in engine.py")
    parser.add_argument("--frames", type=int, default=256)
    parser.add_argument("--questions", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--side", type=int, default=96, help="of MiniHorizon's square frames, in pixels")
    parser.add_argument("--python", type=Path, default=PYTHON)
    arguments = parser.parse_args()
    if not arguments.python.exists():
        sys.exit(f"lmms-eval has no environment at {arguments.python}: make it with `make lmms-env`.")
    print(json.dumps({"python": platform.python_version(), "cores": len(os.sched_getaffinity(0))}))
    asked = job_of(arguments)
    config = configured(arguments, arguments.questions, True, Path("unused"))
    loaded = loading.load_model(config.model)
    rates: dict[str, list[float]] = {"ours": [], **{variant: [] for variant in VARIANTS}}
    agreement: dict[str, dict[str, int]] = {}
    with mock.patch.object(loading, "load_model", return_value=loaded):
        for _ in range(arguments.rounds):
            records = ours(arguments)
            rates["ours"].append(len(records) / wall(records))
            for variant in VARIANTS:
                told = theirs(arguments, asked, variant)
                rates[variant].append(len(told["items"]) / told["seconds"])
                agreement[variant] = compared(records, told)
    print(json.dumps({
        "videos": arguments.videos + 1, "frames": len(records[0].slots), "questions": arguments.questions,
        "prompt_tokens": records[0].n_prompt_tokens, "agreement": agreement,
        "items_a_second": {name: [round(rate, 2) for rate in found] for name, found in rates.items()},
        "ours_over": {
            variant: round(
                statistics.median(a / b for a, b in zip(rates["ours"], rates[variant], strict=True)), 2
            )
            for variant in VARIANTS
        },
        "ceiling_one_prefill_a_video": arguments.questions,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
