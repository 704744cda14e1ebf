"""What sharing a video's part of the prompt is worth: items a second of `+exp=benchmark`, on
over off.

    python tests/benchmarks/engine.py [--videos N] [--frames N] [--questions 4 8] [--rounds R] [--model tiny]

MiniHorizon, the hf engine, whole runs through the same door as the command line, in turns: sharing on; off
with frames still read once a video (`backend.sharing=false`); off with each question read by itself, which is
what sharing off means where nothing is shared. Timed from the first group to the last record: items over the
records' `busy` and `idle` seconds. Start-up is excluded: the model is loaded once, and the first video of
each run, on which the engine checks itself, is left out, in every variant.

Printed beside it: whether answers are the same, how far log-probabilities are apart, and two ceilings.
Tokens: how many times fewer pass the decoder where each video's part is run once and each question's once.
Time: a run that asks one question a video cannot do less than one reading, one encoding and one prefill; no
sharing is faster a video than that. What is timed is not judged here: it depends on the machine.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import argparse
import json
import platform
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import groupby
from pathlib import Path
from typing import Any
from unittest import mock

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from rich.console import Console

from diagnostics.catalogue import config_folder, rewrite_overrides
from diagnostics.config import RunConfig, run_config
from diagnostics.experiments import read_ahead
from diagnostics.models import loading
from diagnostics.run import execute
from diagnostics.store.manifest import read_manifests
from diagnostics.store.record_log import all_records
from diagnostics.store.records import Record

VARIANTS = ("shared", "off", "off, each read alone", "one question")


def configured(arguments: argparse.Namespace, questions: int, sharing: bool, out: Path) -> RunConfig:
    overrides = [
        "+exp=benchmark", f"model={arguments.model}", f"data.n_videos={arguments.videos + 1}",
        f"data.questions={questions}", f"sampling.budget={arguments.frames}",
        f"backend.sharing={str(sharing).lower()}", f"threads={arguments.threads}", f"out={out}",
    ]  # fmt: skip
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        values: Any = OmegaConf.to_container(compose("config", rewrite_overrides(overrides)), resolve=True)
    return run_config(values)


@contextmanager
def each_read_alone() -> Iterator[None]:
    with mock.patch.object(read_ahead, "groupby", lambda pairs, key: ((key(pair), [pair]) for pair in pairs)):
        yield


def run(arguments: argparse.Namespace, questions: int, variant: str) -> tuple[list[Record], int]:
    """The records of one run in order, without its first video's, and the tokens of the shared prefix."""
    asked = 1 if variant == "one question" else questions
    with tempfile.TemporaryDirectory() as folder:
        config = configured(arguments, asked, variant == "shared", Path(folder) / "run")
        with each_read_alone() if variant == "off, each read alone" else nullcontext():
            execute(config, multirun=False, console=Console(quiet=True))
        records = all_records(Path(folder) / "run")
        (manifest,) = read_manifests(Path(folder) / "run")
    failed = [record for record in records if record.error is not None]
    if failed:
        raise SystemExit(f"{len(failed)} items failed: {failed[0].error}")
    _, *videos = [list(group) for _, group in groupby(records, key=lambda record: record.video_id)]
    prefix = manifest.checks.get("sharing", {}).get("prefix_tokens", 0)
    return [record for video in videos for record in video], prefix


def wall(records: list[Record]) -> float:
    return sum((record.seconds["busy"] or 0.0) + (record.seconds["idle"] or 0.0) for record in records)


def part(records: list[Record], name: str) -> float:
    return sum(record.seconds[name] or 0.0 for record in records)


def compared(shared: list[Record], alone: list[Record]) -> dict[str, Any]:
    """Answers and log-probabilities of the same items, asked together and alone."""
    by_item = {record.item_id: record for record in alone}
    worst = max(
        abs((value or 0.0) - (by_item[record.item_id].option_logprobs[letter] or 0.0))
        for record in shared
        for letter, value in record.option_logprobs.items()
    )
    return {
        "items": len(shared),
        "same_replies": sum(record.raw == by_item[record.item_id].raw for record in shared),
        "same_prompts": sum(
            record.prompt_sha256 == by_item[record.item_id].prompt_sha256 for record in shared
        ),
        "max_logprob_difference": worst,
    }


def token_ceiling(records: list[Record], prefix: int) -> float:
    """Prompt tokens without sharing over those with the video's part once a video and the rest each time."""
    lengths = [record.n_prompt_tokens or 0 for record in records]
    videos = len({record.video_id for record in records})
    return sum(lengths) / (videos * prefix + sum(length - prefix for length in lengths))


def report(arguments: argparse.Namespace, questions: int) -> None:
    rounds: dict[str, list[list[Record]]] = {variant: [] for variant in VARIANTS}
    prefix = 0
    for _ in range(arguments.rounds):
        for variant in VARIANTS:
            records, found_prefix = run(arguments, questions, variant)
            rounds[variant].append(records)
            prefix = found_prefix or prefix
    rates = {
        variant: [len(records) / wall(records) for records in found]
        for variant, found in rounds.items()
        if variant != "one question"
    }
    videos = {
        variant: statistics.median(wall(records) / arguments.videos for records in found)
        for variant, found in rounds.items()
    }

    def ratio(other: str) -> float:
        pairs = zip(rates["shared"], rates[other], strict=True)
        return round(statistics.median(on / off for on, off in pairs), 2)

    first = rounds["shared"][0]
    print(json.dumps({
        "questions": questions, "videos": arguments.videos, "frames": len(first[0].slots),
        "prompt_tokens": first[0].n_prompt_tokens, "prefix_tokens": prefix,
        **compared(first, rounds["off"][0]),
        "items_a_second": {name: [round(rate, 2) for rate in found] for name, found in rates.items()},
        "over_off": ratio("off"), "over_off_each_read_alone": ratio("off, each read alone"),
        "ceiling_tokens": round(token_ceiling(first, prefix), 2),
        "ceiling_time": round(videos["off, each read alone"] / videos["one question"], 2),
        "seconds_a_video": {name: round(seconds, 3) for name, seconds in videos.items()},
        "parts_shared": {
            name: round(part(first, name) / arguments.videos, 3)
            for name in ("decode", "prepare", "generate", "busy", "idle")
        },
    }), flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--videos", type=int, default=4)
    parser.add_argument("--frames", type=int, default=256)
    parser.add_argument("--questions", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--model", default="tiny")
    arguments = parser.parse_args()
    print(json.dumps({"python": platform.python_version(), "cores": len(os.sched_getaffinity(0))}))
    with tempfile.TemporaryDirectory() as folder:
        config = configured(arguments, 1, True, Path(folder))
    loaded = loading.load_model(config.model)
    with mock.patch.object(loading, "load_model", return_value=loaded):
        for questions in arguments.questions:
            report(arguments, questions)


if __name__ == "__main__":
    main()
