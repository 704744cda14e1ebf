"""The vLLM engine without vLLM: its thread, what it refuses before it starts, and what it would start with.

What real vLLM answers is in tests/system/vllm.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
import threading
import types
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import yaml

from diagnostics.config import NOT_RESULTS
from diagnostics.errors import CheckpointError, ConfigError, ModelError, RunError
from diagnostics.models.backends import open_engine, vllm
from diagnostics.models.backends.requests import Answer, PromptSettings, Request
from diagnostics.models.backends.vllm_model import Question, ServedModel
from diagnostics.models.config import BackendConfig, ModelConfig

from .conftest import a_question, uniform

ROOT = Path(__file__).resolve().parents[3]
TINY = ModelConfig(name="tiny", path="tiny")
GIB = 2**30


def an_engine(model: ModelConfig = TINY, **parameters: Any) -> vllm.VllmEngine:
    def load() -> Any:
        raise AssertionError("vLLM loads the weights by itself")

    config = BackendConfig(name="vllm", parameters=parameters)
    engine = open_engine(load, model, config, lambda name, finding: None)
    assert isinstance(engine, vllm.VllmEngine)
    return engine


def requests(*names: str) -> list[Request]:
    frames = uniform(4, fps=25, source_frames=100)
    return [Request(a_question(id=name), {}, frames, PromptSettings("One letter.", 4)) for name in names]


# -- the thread


class Pretended:
    """In the place of `ServedModel`: an item is answered once `steps` steps were taken with it.

    An item called `refused` is refused; a step with one called `broken` fails.
    """

    steps = 2
    gate: threading.Event | None = None
    """Where there is one, no step is taken before it is set."""

    def __init__(self, *arguments: Any) -> None:
        self.waiting: dict[str, Question] = {}
        self.taken: dict[str, int] = {}
        self.most = 0
        self.thread = threading.current_thread()
        made.append(self)

    def take(self, question: Question) -> None:
        assert threading.current_thread() is self.thread
        name = question.request.item.id
        if name == "refused":
            question.future.set_exception(ModelError("No.", remedy="None.", item_id=name))
            return
        self.waiting[name], self.taken[name] = question, 0
        self.most = max(self.most, len(self.waiting))

    def step(self) -> None:
        assert threading.current_thread() is self.thread
        if self.gate is not None and self.waiting:
            assert self.gate.wait(60)
        if "broken" in self.waiting:
            raise ValueError("the engine core died\nand more")
        for name in list(self.waiting):
            self.taken[name] += 1
            if self.taken[name] == self.steps:
                self.waiting.pop(name).future.set_result(Answer(text=name))

    def let_go(self) -> list[Question]:
        left = list(self.waiting.values())
        self.waiting.clear()
        return left


made: list[Pretended] = []


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> type[Pretended]:
    made.clear()
    kind = type("Kind", (Pretended,), {})
    monkeypatch.setattr(vllm, "ServedModel", kind)
    return kind


def test_groups_are_answered_in_its_thread_and_a_refusal_is_that_items(pretended: type[Pretended]) -> None:
    with an_engine() as engine:
        engine.start()
        futures = [*engine.submit(requests("a", "refused", "b")), *engine.submit(requests("c"))]
        found = [future.exception(60) or future.result(60).text for future in futures]
        assert [found[0], found[2], found[3]] == ["a", "b", "c"]
        assert isinstance(found[1], ModelError)
        assert found[1].item_id == "refused"
        assert made[0].thread is not threading.current_thread()
    assert not made[0].thread.is_alive()


def test_groups_that_come_in_meanwhile_are_asked_together(pretended: type[Pretended]) -> None:
    pretended.gate = threading.Event()
    with an_engine() as engine:
        engine.start()
        futures = [future for name in "abcd" for future in engine.submit(requests(name))]
        pretended.gate.set()
        assert [future.result(60).text for future in futures] == list("abcd")
    assert made[0].most >= 2, "the first was not answered before the others were taken"


def test_an_engine_that_fails_ends_the_run_and_names_why(pretended: type[Pretended]) -> None:
    with an_engine() as engine:
        engine.start()
        futures = engine.submit(requests("a", "broken"))
        later = [future.exception(60) for future in futures]
        later += [future.exception(60) for future in engine.submit(requests("after"))]
    for error in later:
        assert isinstance(error, RunError)
        assert "the engine core died" in str(error)
        assert "and more" not in str(error)


def test_leaving_drops_what_waits(pretended: type[Pretended]) -> None:
    pretended.steps = 10**9
    with an_engine() as engine:
        engine.start()
        (future,) = engine.submit(requests("never"))
    assert not future.done()
    assert not made[0].thread.is_alive()


def test_a_start_that_fails_is_told_to_whoever_starts(
    pretended: type[Pretended], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any) -> None:
        raise CheckpointError("No weights.", remedy="None.")

    monkeypatch.setattr(vllm, "ServedModel", refuse)
    with an_engine() as engine, pytest.raises(CheckpointError, match="No weights"):
        engine.start()


def test_an_engine_that_was_never_started_is_left_quietly() -> None:
    with an_engine():
        pass


# -- the configuration


def test_how_many_it_holds_are_its_own_parameters() -> None:
    engine = an_engine(together=3, in_flight=5)
    assert (engine.together, engine.in_flight) == (3, 5)
    with pytest.raises(ConfigError, match="in_flight"):
        an_engine(in_flihgt=2)


def test_its_file_lists_every_parameter_and_none_changes_results() -> None:
    values = yaml.safe_load((ROOT / "conf" / "backend" / "vllm.yaml").read_text())
    own = {entry.name for entry in dataclasses.fields(vllm.Config)}
    assert set(values) == own | {"name", "max_new_tokens", "instruction"}
    defaults = vllm.Config()
    assert {name: values[name] for name in own} == {name: getattr(defaults, name) for name in own}
    assert {f"backend.{name}" for name in own} <= NOT_RESULTS


# -- what vLLM is started with


def test_without_vllm_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with an_engine() as engine, pytest.raises(ConfigError, match=r"`vllm` extra .*docs/vllm\.md"):
        engine.start()


Start = Callable[..., dict[str, Any]]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Start:
    """The arguments that `vllm.LLM` would get, on a platform."""

    class Started(Exception):
        pass

    def begun(model: ModelConfig, platform: str = "cuda", **parameters: Any) -> dict[str, Any]:
        told: dict[str, Any] = {}

        def pretended_llm(**options: Any) -> None:
            told.update(options)
            raise Started

        platforms = types.ModuleType("vllm.platforms")
        platforms.current_platform = types.SimpleNamespace(device_type=platform)  # type: ignore[attr-defined]
        package = types.ModuleType("vllm")
        package.LLM = pretended_llm  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "vllm", package)
        monkeypatch.setitem(sys.modules, "vllm.platforms", platforms)
        with pytest.raises(Started):
            ServedModel(model, vllm.Config(**parameters), lambda name, finding: None)
        return told

    return begun


def test_what_vllm_is_started_with_by_default(start: Start) -> None:
    told = start(TINY)
    assert told["dtype"] == "float32", "the checkpoint's own; vLLM's auto would make it bfloat16"
    assert (told["seed"], told["max_model_len"], told["tensor_parallel_size"]) == (0, -1, 1)
    assert told["max_num_seqs"] == 16 * 4
    assert told["generation_config"] == "vllm"
    assert told["enable_prefix_caching"] is True
    for left_to_vllm in ("gpu_memory_utilization", "kv_cache_memory_bytes", "mm_device_do_normalize"):
        assert left_to_vllm not in told


def test_what_is_asked_for_reaches_vllm(start: Start) -> None:
    model = dataclasses.replace(TINY, dtype="bfloat16", max_pixels=64 * 64 * 8, min_pixels=64 * 64)
    told = start(
        model, sharing=False, max_model_len=512, tensor_parallel=2, gpu_memory_utilization=0.5, eager=True,
        kv_cache_gib=2.0,
    )  # fmt: skip
    assert told["dtype"] == "bfloat16"
    assert (told["max_model_len"], told["tensor_parallel_size"]) == (512, 2)
    assert (told["gpu_memory_utilization"], told["kv_cache_memory_bytes"]) == (0.5, 2 * GIB)
    assert told["enforce_eager"] is True
    assert (told["enable_prefix_caching"], told["mm_processor_cache_gb"]) == (False, 0)
    size = told["mm_processor_kwargs"]["videos_kwargs"]["size"]
    assert (size["shortest_edge"], size["longest_edge"]) == (64 * 64, 64 * 64 * 8)


def test_code_of_the_checkpoint_runs_only_where_it_is_named(start: Start) -> None:
    assert start(TINY)["trust_remote_code"] is False
    assert start(dataclasses.replace(TINY, trust_remote_code=TINY.path))["trust_remote_code"] is True
    with pytest.raises(ConfigError, match="trust_remote_code names 'another'"):
        start(dataclasses.replace(TINY, trust_remote_code="another"))


def test_without_a_gpu_the_cache_has_a_size(start: Start) -> None:
    assert start(TINY, platform="cpu")["kv_cache_memory_bytes"] == GIB


def test_videos_normalised_otherwise_than_pictures_are_normalised_before_the_device(
    start: Start, checkpoints: dict[str, Path]
) -> None:
    folder = checkpoints["qwen3_vl"].with_name("otherwise")
    shutil.copytree(checkpoints["qwen3_vl"], folder, dirs_exist_ok=True)
    saved = json.loads((folder / "processor_config.json").read_text())
    saved["image_processor"]["image_mean"] = [0.1, 0.2, 0.3]
    (folder / "processor_config.json").write_text(json.dumps(saved))
    assert start(ModelConfig(name="m", path=str(folder)))["mm_device_do_normalize"] is False


def test_a_family_that_vllm_tells_other_times_is_refused(start: Start, checkpoints: dict[str, Path]) -> None:
    with pytest.raises(ConfigError, match=r"qwen2_5_vl.*backend=hf"):
        start(ModelConfig(name="m", path=str(checkpoints["qwen2_5_vl"])))


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [({"device": "cpu"}, "model.device=auto"), ({"device_map": "auto"}, "backend.tensor_parallel")],
)
def test_where_it_runs_is_not_said_in_two_ways(start: Start, changes: dict[str, Any], remedy: str) -> None:
    with pytest.raises(ConfigError, match=remedy):
        start(dataclasses.replace(TINY, **changes), platform="cuda")


def test_a_future_is_of_the_request_it_was_given_for(pretended: type[Pretended]) -> None:
    with an_engine() as engine:
        engine.start()
        group = requests(*"zyx")
        futures: list[Future[Answer]] = list(engine.submit(group))
        for request, future in zip(group, futures, strict=True):
            assert future.result(60).text == request.item.id
