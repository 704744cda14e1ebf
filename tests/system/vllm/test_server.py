"""The openai engine against a real `vllm serve` on loopback: the prompts and answers of transformers.

Both see the same pictures: those that the JPEGs decode to.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diagnostics.data import minihorizon
from diagnostics.data.items import Item
from diagnostics.errors import EndpointError
from diagnostics.models.backends import open_engine
from diagnostics.models.backends.chat_messages import pictures
from diagnostics.models.backends.hf import answer
from diagnostics.models.backends.requests import Answer, PromptSettings, Reply, Request
from diagnostics.models.config import BackendConfig, ModelConfig
from diagnostics.models.loading import load_model
from diagnostics.models.prompting import Prompt, prepare_inputs
from diagnostics.testbed import WEIGHTS
from diagnostics.video.reading import FrameReader
from diagnostics.video.sampling import select_frames, uniform
from diagnostics.video.selection import Frames

from ...diagnostics.models.chat_server import decoded
from .environment import InstallError, environment

pytestmark = pytest.mark.system

N_ITEMS, CONTEXT, NEW_TOKENS, BUDGET = 12, 2048, 8, 16
INSTRUCTION = "Answer with the letter of the correct option only."
TOLERANCE = 1e-3
"""In nats: float32 through different kernels."""
LIMIT_SECONDS = 600
FLAGS = (
    "--dtype=float32", "--enforce-eager", "--seed=0", f"--max-model-len={CONTEXT}", "--max-num-seqs=4",
    '--limit-mm-per-prompt={"video": 1, "image": 16}', "--kv-cache-memory-bytes=268435456",
    "--mm-processor-cache-gb=0", "--no-enable-prefix-caching", "--served-model-name=tiny",
    "--trust-request-mm-kwargs",
)  # fmt: skip


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    try:
        python = environment()
    except InstallError as error:
        pytest.skip(f"vLLM's packages cannot be installed here: {error}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
        "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1", "PATH": f"{python.parent}:{os.environ['PATH']}",
    }  # fmt: skip
    # What `vllm serve` starts; that command asks for a package of the name vllm, which this build is not.
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server", f"--model={WEIGHTS}"]
    log = tmp_path_factory.mktemp("vllm") / "log.txt"
    with log.open("w") as told:
        process = subprocess.Popen(
            [*command, "--host=127.0.0.1", f"--port={port}", *FLAGS],
            stdout=told, stderr=subprocess.STDOUT, env=variables, start_new_session=True,
        )  # fmt: skip
    try:
        _wait(f"http://127.0.0.1:{port}/health", process, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """The server and the engine process that it has."""
    process.terminate()
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    with contextlib.suppress(ProcessLookupError):  # all are gone
        os.killpg(process.pid, signal.SIGKILL)


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()[-6000:]
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise AssertionError(f"vLLM did not start in {LIMIT_SECONDS} s: {log.read_text()[-6000:]}")


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Item, Frames]]:
    """Items with frames; every third is told by another clock than the film's."""
    cache = str(tmp_path_factory.mktemp("films"))
    items = minihorizon.load(minihorizon.Config(split="test", n_videos=3, cache=cache)).items[:N_ITEMS]
    assert len(items) == N_ITEMS
    found = []
    with FrameReader() as reader:
        for number, item in enumerate(items):
            selection = select_frames(uniform, uniform.Config(budget=BUDGET), reader.index(item.video), item)
            if number % 3 == 2:
                slots = [replace(one, shown_seconds=1.37 * one.true_seconds + 0.2) for one in selection.slots]
                selection = replace(selection, slots=tuple(slots))
            found.append((item, Frames(reader.read(item.video, selection.frame_indices), selection)))
    return found


@pytest.fixture(scope="module")
def ours(shown: list[tuple[Item, Frames]]) -> list[tuple[Prompt, Reply]]:
    """What transformers says to the pictures that the JPEGs hold."""
    loaded = load_model(ModelConfig(name="tiny", path="tiny", dtype="float32", device="cpu"))
    found = []
    for item, frames in shown:
        (part,) = pictures(frames, "video", "video", 95, None).parts
        seen = Frames(np.array(decoded(part["video_url"]["url"])), frames.selection)
        prompt = prepare_inputs(loaded, item, seen, instruction=INSTRUCTION, max_new_tokens=NEW_TOKENS)
        found.append((prompt, answer(loaded, prompt.inputs, item, NEW_TOKENS)))
    return found


def ask(
    address: str, shown: Sequence[tuple[Item, Frames]], **parameters: Any
) -> tuple[list[Answer | BaseException], dict[str, Any]]:
    notes: dict[str, Any] = {}
    settings = BackendConfig("openai", parameters={"base_url": address, "model": "tiny", **parameters})
    model = ModelConfig(name="tiny", path="tiny")
    prompt = PromptSettings(INSTRUCTION, NEW_TOKENS)
    with open_engine(lambda: pytest.fail("loaded"), model, settings, notes.__setitem__) as engine:
        engine.start()
        futures = [engine.submit([Request(item, {}, frames, prompt)])[0] for item, frames in shown]
        errors = [future.exception(LIMIT_SECONDS) for future in futures]
        found = [error or future.result() for error, future in zip(errors, futures, strict=True)]
    return found, notes


def test_a_video_is_the_prompt_and_the_answer_of_transformers(
    address: str, shown: list[tuple[Item, Frames]], ours: list[tuple[Prompt, Reply]]
) -> None:
    answers, notes = ask(address, shown, frames="video")
    told = [found for found in answers if isinstance(found, Answer)]
    assert len(told) == N_ITEMS, answers
    for (item, _), (prompt, reply), found in zip(shown, ours, told, strict=True):
        assert found.n_prompt_tokens == prompt.n_tokens, item.id
        assert found.text == reply.text, item.id
        if found.option_logprobs:
            np.testing.assert_allclose(
                found.option_logprobs, reply.option_logprobs, rtol=0, atol=TOLERANCE, err_msg=item.id
            )
    assert sum(bool(found.option_logprobs) for found in told) >= N_ITEMS // 2, "mostly all letters are told"
    assert len({reply.text for _, reply in ours}) > 1, "one that says one thing to all agrees with itself"
    assert notes["endpoint"]["served_as"] == ["tiny"]
    assert notes["endpoint"]["retries"] == {}
    assert notes["endpoint"]["tokens"]["prompt"] == sum(prompt.n_tokens for prompt, _ in ours)


def test_images_with_their_times_are_taken(address: str, shown: list[tuple[Item, Frames]]) -> None:
    answers, _ = ask(address, shown[:3])
    for found in answers:
        assert isinstance(found, Answer), found
        assert found.text
        assert (found.n_prompt_tokens or 0) > BUDGET


def test_too_many_pictures_cost_the_item_with_the_servers_words(
    address: str, shown: list[tuple[Item, Frames]]
) -> None:
    item, frames = shown[0]
    selection = replace(frames.selection, slots=frames.selection.slots * 2)
    (error,), _ = ask(address, [(item, Frames(np.concatenate([frames.pixels] * 2), selection))])
    assert isinstance(error, EndpointError)
    assert "HTTP 400" in error.problem
    assert "image" in error.problem
