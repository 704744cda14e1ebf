"""Answers through vLLM, in this process: many questions at a time, in one thread that owns it.

The thread takes the groups that have come in, prepares their questions, takes a step of the engine and hands
out what is finished (`vllm_model`). vLLM has an environment of its own (docs/vllm.md) and is imported when
the first question is asked.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Annotated, Any

from pydantic import Field, PositiveInt
from pydantic.dataclasses import dataclass as configured

from diagnostics.errors import RunError
from diagnostics.models.backends.requests import Answer, Request
from diagnostics.models.backends.vllm_model import Question, ServedModel, first_line
from diagnostics.models.config import ModelConfig
from diagnostics.models.memory import free_memory
from diagnostics.strict import STRICT

__all__ = ["Config", "VllmEngine", "engine"]


@configured(frozen=True, config=STRICT)
class Config:
    """Parameters of this engine.

    Attributes:
        sharing: questions that are shown the same frames share one preparation and one prefill of the video
            (vLLM's caches); off, each is asked by itself.
        together: so many questions of a video at most in one group.
        in_flight: so many groups are asked at a time.
        max_model_len: tokens of prompt and reply at most; None takes the checkpoint's context, or as much of
            it as memory holds. A longer prompt is refused, not cut.
        tensor_parallel: GPUs that the weights are spread over.
        gpu_memory_utilization: share of the GPU's memory that vLLM may take; None for vLLM's own.
        kv_cache_gib: memory of the attention cache, instead of what that share leaves; without a GPU 1.
        eager: no compilation and no CUDA graphs: it starts sooner and answers more slowly.
    """

    sharing: bool = True
    together: PositiveInt = 16
    in_flight: PositiveInt = 4
    max_model_len: PositiveInt | None = None
    tensor_parallel: PositiveInt = 1
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] | None = None
    kv_cache_gib: Annotated[float, Field(gt=0)] | None = None
    eager: bool = False


def engine(
    load: Callable[[], Any], model: ModelConfig, settings: Config, note: Callable[[str, Any], None]
) -> VllmEngine:
    """See `diagnostics.models.backends`."""
    del load  # vLLM loads the weights by itself
    return VllmEngine(model, settings, note)


class VllmEngine:
    """vLLM in a thread of its own.

    What is wrong with one question (its text, its length) is told of that question. An engine that fails
    while it answers cannot go on: all that it holds fails with `RunError`.
    """

    def __init__(self, model: ModelConfig, config: Config, note: Callable[[str, Any], None]) -> None:
        self._model, self._config, self._note = model, config, note
        self.together, self.in_flight = config.together, config.in_flight
        self._inbox: queue.SimpleQueue[list[Question] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> VllmEngine:
        return self

    def start(self) -> None:
        """Import vLLM and load the model into it.

        Raises:
            ConfigError: vLLM is not installed here, or cannot do what is asked of it.
            CheckpointError: it cannot load the checkpoint.
        """
        ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._work, args=(ready,), name="vllm", daemon=True)
        self._thread.start()
        ready.result()

    def flush(self) -> None:
        """Nothing is held back here."""

    def submit(self, group: Sequence[Request]) -> Sequence[Future[Answer]]:
        """See `requests.Engine`."""
        questions = [Question(request) for request in group]
        self._inbox.put(questions)
        return [question.future for question in questions]

    def __exit__(self, *error: object) -> None:
        if self._thread is not None:
            self._inbox.put(None)
            self._thread.join()
            self._thread = None
        free_memory()

    def _work(self, ready: Future[None]) -> None:
        """What the thread does until it is told to stop."""
        try:
            served = ServedModel(self._model, self._config, self._note)
        except BaseException as error:  # noqa: BLE001 - raised again by whoever waits for `ready`
            ready.set_exception(error)
            return
        ready.set_result(None)
        broken: RunError | None = None
        while (group := self._next(served)) is not None:
            if broken is None:
                try:
                    for question in group:
                        served.take(question)
                    served.step()
                    continue
                except Exception as error:  # noqa: BLE001 - told to everything that waits
                    broken = _engine_failed(error)
            for question in [*group, *served.let_go()]:
                if not question.future.done():
                    question.future.set_exception(broken)
        served.let_go()

    def _next(self, served: ServedModel) -> list[Question] | None:
        """Groups that have come in, without waiting for one while there is something to do; None at the
        end."""
        found = [self._inbox.get()] if not served.waiting else []
        with suppress(queue.Empty):
            while True:
                found.append(self._inbox.get_nowait())
        if None in found:
            return None
        return [question for group in found if group is not None for question in group]


def _engine_failed(error: Exception) -> RunError:
    failed = RunError(
        f"vLLM failed while it answered: {first_line(error)}.",
        remedy="The same command goes on where this one stopped; where memory ran out, lower "
        "backend.in_flight or backend.gpu_memory_utilization.",
    )
    failed.__cause__ = error
    return failed
