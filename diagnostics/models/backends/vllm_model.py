"""A checkpoint in vLLM: what it is started with, how a question reaches it, and what is made of its reply.

vLLM is given what transformers is given: the chat text by the checkpoint's own template, the decoded frames,
the source's frame rate and the frames' numbers, the pixel limits. It tokenizes, resizes and places the video
by itself; `+exp=parity` says whether it does so as transformers does.
"""

from __future__ import annotations

import importlib
import itertools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any

from diagnostics.errors import CheckpointError, ConfigError, DiagnosticsError, ModelError
from diagnostics.models.backends.requests import Answer, Request
from diagnostics.models.config import ModelConfig
from diagnostics.models.loading import Prompting, load_prompting
from diagnostics.models.prompting import (
    at_least,
    chat_text,
    letter_tokens,
    merged_patch,
    prompt_sha256,
    refuse_too_long,
    shrunk,
    video_size,
)
from diagnostics.models.remote_code import trusts_code

if TYPE_CHECKING:
    from diagnostics.models.backends.vllm import Config

__all__ = ["Question", "ServedModel", "first_line"]

_MOST_LETTERS = 128
"""Of which vLLM gives log-probabilities at once."""
_CPU_KV_CACHE_GIB = 1.0
"""Without a number vLLM wants nine tenths of the machine's memory."""
_ENVIRONMENT = {
    # The engine's end is this process's end. Set it to 1 and pictures are prepared while the GPU works.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    # Its warnings of what a CPU build lacks come with every request, and break through the progress bar.
    "VLLM_LOGGING_LEVEL": "ERROR",
    # Threads bound to cores that others use too wait for each other.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}


@dataclass(eq=False)
class Question:
    """A request on its way through vLLM, and what is known of it so far."""

    request: Request
    future: Future[Answer] = field(default_factory=Future)
    letters: Sequence[int] = ()
    chat: str = ""
    ids: Sequence[int] = ()
    grid: tuple[tuple[int, ...], ...] = ()
    seconds: dict[str, float] = field(default_factory=lambda: {"prepare": 0.0, "generate": 0.0})
    together: int = 1


class ServedModel:
    """vLLM with a checkpoint in it."""

    def __init__(self, model: ModelConfig, config: Config, note: Callable[[str, Any], None]) -> None:
        self._vllm = _import_vllm()
        self._model, self._config = model, config
        self._prompting = load_prompting(model)
        _check_fit(model, self._prompting)
        self._video: dict[str, Any] = {"do_sample_frames": False}
        if size := video_size(self._prompting.processor):
            self._video["size"] = size
        if self._prompting.family.takes_pixel_cap:
            self._video["cap_pixels_per_frame"] = model.cap_pixels_per_frame
        options = self._options()
        try:
            self._llm = self._vllm.LLM(**options)
        except (ValueError, RuntimeError, OSError, ImportError) as error:
            raise CheckpointError(
                f"vLLM cannot start with {self._prompting.path!r}: {first_line(error)}.",
                remedy="See docs/vllm.md; backend.max_model_len, backend.gpu_memory_utilization and "
                "backend.tensor_parallel say how much memory it needs and has.",
            ) from error
        self._context = int(self._llm.model_config.max_model_len)
        processor = self._prompting.processor
        self._visual = {processor.video_token_id, processor.image_token_id}
        self._numbers = itertools.count()
        self.waiting: dict[str, Question] = {}
        note("model", self._provenance(options))

    def _options(self) -> dict[str, Any]:
        """Keyword arguments of `vllm.LLM`."""
        model, config, prompting = self._model, self._config, self._prompting
        platform = importlib.import_module("vllm.platforms").current_platform.device_type
        if model.device != "auto" and model.device.split(":")[0] != platform:
            raise ConfigError(
                f"model.device is {model.device!r}, and the vLLM that is installed here runs on {platform}.",
                remedy="Set model.device=auto.",
            )
        cache = config.kv_cache_gib or (_CPU_KV_CACHE_GIB if platform == "cpu" else None)
        options: dict[str, Any] = {
            "model": prompting.path,
            "revision": model.revision,
            "tokenizer_revision": model.revision,
            "trust_remote_code": trusts_code(model),
            "dtype": _dtype(model, prompting.architecture),
            "seed": 0,
            "max_model_len": config.max_model_len or -1,
            "max_num_seqs": config.together * config.in_flight,
            "tensor_parallel_size": config.tensor_parallel,
            "enforce_eager": config.eager,
            "generation_config": "vllm",  # no sampling or penalties of the checkpoint's own
            "limit_mm_per_prompt": {"video": 1, "image": 0},
            "mm_processor_kwargs": {"videos_kwargs": self._video},
            "enable_prefix_caching": config.sharing,
        }
        if not config.sharing:
            options["mm_processor_cache_gb"] = 0
        if not _normalised_alike(prompting.processor):
            options["mm_device_do_normalize"] = False
        if config.gpu_memory_utilization is not None:
            options["gpu_memory_utilization"] = config.gpu_memory_utilization
        if cache is not None:
            options["kv_cache_memory_bytes"] = int(cache * 2**30)
        return options

    def _provenance(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """What the manifest keeps."""
        versions = {
            name: importlib.import_module(name).__version__ for name in ("vllm", "torch", "transformers")
        }
        return {
            "path": self._prompting.path,
            "engine": "vllm",
            "versions": versions,
            "dtype": str(self._llm.model_config.dtype).removeprefix("torch."),
            "max_model_len": self._context,
            "video_size": self._video.get("size"),
            "options": {name: value for name, value in options.items() if name != "model"},
        }

    def take(self, question: Question) -> None:
        """Prepare a question and queue it; what is wrong with it is told to it."""
        started = time.perf_counter()
        try:
            self._prepare_and_add(question)
        except DiagnosticsError as error:
            question.future.set_exception(error)
        finally:
            question.seconds["prepare"] = time.perf_counter() - started

    def _prepare_and_add(self, question: Question) -> None:
        request, processor = question.request, self._prompting.processor
        item, prompt = request.item, request.prompt
        if prompt.form == "images":
            raise ModelError(
                "backend=vllm shows a video or nothing, no separate images.",
                remedy="Choose backend=hf.",
                item_id=item.id,
            )
        n_frames = len(request.frames.selection)
        letters = letter_tokens(processor.tokenizer, item)
        question.letters = letters if len(letters) <= _MOST_LETTERS else ()
        question.chat = chat_text(
            processor, item, n_frames, instruction=prompt.instruction, form=prompt.form
        ).chat
        rendered = self._rendered(question)
        question.ids = tuple(rendered["prompt_token_ids"])
        question.grid = _grid(rendered)
        self._refuse_too_long(request, len(question.ids))
        sampling = self._vllm.SamplingParams(
            temperature=0,
            max_tokens=prompt.max_new_tokens,
            logprob_token_ids=list(question.letters) or None,
        )
        name = str(next(self._numbers))
        self._llm.llm_engine.add_request(name, rendered, sampling)
        self.waiting[name] = question

    def _rendered(self, question: Question) -> Mapping[str, Any]:
        """Token ids and pixel values as vLLM makes them."""
        request = question.request
        prompt: dict[str, Any] = {"prompt": question.chat}
        if request.prompt.form == "video":
            pixels, selection = at_least(request.frames, self._prompting.family.least_frames)
            told = self._prompting.family.video_arguments(selection)["video_metadata"][0]
            told = {**told, "frames_indices": told["frames_indices"].tolist(), "do_sample_frames": False}
            prompt["multi_modal_data"] = {"video": [(pixels, told)]}
            prompt["mm_processor_kwargs"] = {"videos_kwargs": self._video_arguments(request, len(selection))}
        try:
            # Its own cache, on this side only: an item that is refused now leaves no trace in the engine.
            (rendered,) = self._llm.renderer.render_cmpl([prompt], skip_mm_cache=True)
        except (ValueError, self._exceptions.VLLMClientError) as error:
            # Text alone that is too long: vLLM stops before it has counted the video's tokens.
            self._refuse_too_long(request, len(self._prompting.processor.tokenizer.encode(question.chat)))
            raise ModelError(
                f"vLLM cannot prepare the prompt: {first_line(error)}.",
                remedy="Ask the item with backend=hf to see whether it is at fault.",
                item_id=request.item.id,
                path=request.item.video,
            ) from error
        return rendered

    def _refuse_too_long(self, request: Request, n_tokens: int) -> None:
        remedy = "Lower sampling.budget or model.max_pixels, or raise backend.max_model_len."
        refuse_too_long(
            request.item, n_tokens, request.prompt.max_new_tokens, self._context, self._model.name, remedy
        )

    def _video_arguments(self, request: Request, n_frames: int) -> dict[str, Any]:
        if request.prompt.frame_pixels is None:
            return self._video
        current = video_size(self._prompting.processor)
        limit = self._prompting.family.frame_limit(request.prompt.frame_pixels, n_frames, current)
        return {**self._video, "size": limit} if limit else self._video

    @property
    def _exceptions(self) -> ModuleType:
        return importlib.import_module("vllm.exceptions")

    def step(self) -> None:
        """One step of the engine; answers that are finished go to their futures."""
        if not self.waiting:
            return
        started = time.perf_counter()
        outputs = self._llm.llm_engine.step()
        share = (time.perf_counter() - started) / len(self.waiting)
        for question in self.waiting.values():
            question.seconds["generate"] += share
            question.together = max(question.together, len(self.waiting))
        for output in outputs:
            if output.finished:
                question = self.waiting.pop(output.request_id)
                question.future.set_result(self._answer(question, output.outputs[0]))

    def _answer(self, question: Question, reply: Any) -> Answer:
        processor, request = self._prompting.processor, question.request
        tokens = list(reply.token_ids)
        first = reply.logprobs[0] if question.letters else {}
        return Answer(
            text=processor.tokenizer.decode(tokens, skip_special_tokens=True).strip(),
            option_logprobs=tuple(first[letter].logprob for letter in question.letters),
            n_prompt_tokens=len(question.ids),
            n_visual_tokens=sum(token in self._visual for token in question.ids),
            n_new_tokens=len(tokens),
            grid=question.grid,
            prompt_ids=tuple(question.ids),
            prompt_sha256=prompt_sha256(question.chat, question.ids),
            cut=reply.finish_reason == "length",
            together=question.together,
            seconds=question.seconds,
            notices=self._notices(request, question),
        )

    def _notices(self, request: Request, question: Question) -> tuple[str, ...]:
        found: list[str] = []
        if question.grid:
            processor = self._prompting.processor.video_processor
            found += self._prompting.family.notices(request.frames.selection, None)
            _, rows, cols = question.grid[0]
            shown = rows * int(processor.patch_size), cols * int(processor.patch_size)
            found += shrunk(shown, merged_patch(self._prompting.processor), request.frames)
        trained = self._model.trained_positions
        if trained is not None and len(question.ids) > trained:  # positions are at most as many as tokens
            found.append(
                f"positions_past_training: the prompt has {len(question.ids)} tokens, "
                f"{self._model.name} was trained up to position {trained}"
            )
        return tuple(found)

    def let_go(self) -> list[Question]:
        """Drop what is waiting; returns it."""
        left = list(self.waiting.values())
        self.waiting.clear()
        return left


def _import_vllm() -> ModuleType:
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        return importlib.import_module("vllm")
    except (ImportError, OSError) as error:
        raise ConfigError(
            f"backend=vllm needs vLLM, which cannot be imported here: {first_line(error)}.",
            remedy="Install the `vllm` extra into an environment of its own (docs/vllm.md), or choose "
            "backend=hf.",
        ) from error


def _check_fit(model: ModelConfig, prompting: Prompting) -> None:
    """Refuse what this engine would do otherwise than transformers, or not at all."""
    if not prompting.family.told_by_metadata:
        raise ConfigError(
            f"backend=vllm would tell {model.name} ({prompting.architecture.model_type}) other times of its "
            "frames than backend=hf, or its prompts were never compared with those.",
            remedy="Choose backend=hf, or serve it and choose backend=openai.",
        )
    if model.sound:
        raise ConfigError("model.sound is for backend=hf.", remedy="Set model.sound=false.")
    if model.device_map is not None:
        raise ConfigError(
            "model.device_map is for backend=hf.",
            remedy="Set model.device_map=null and backend.tensor_parallel to the number of GPUs.",
        )


def _dtype(model: ModelConfig, architecture: Any) -> str:
    """The number format; vLLM's own `auto` turns float32 checkpoints into bfloat16."""
    own = getattr(architecture, "dtype", None)
    return str(own).removeprefix("torch.") if model.dtype == "auto" and own is not None else model.dtype


def _normalised_alike(processor: Any) -> bool:
    """Whether pictures and videos have the same normalisation: on the device vLLM has the pictures' only."""
    names = ("do_rescale", "rescale_factor", "do_normalize", "image_mean", "image_std")
    picture, video = processor.image_processor, processor.video_processor
    return all(_plain(getattr(picture, name, None)) == _plain(getattr(video, name, None)) for name in names)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, list | tuple) else value


def _grid(rendered: Mapping[str, Any]) -> tuple[tuple[int, ...], ...]:
    """(time, height, width) in patches of each video; none of families that return no such grid."""
    videos = (video.get_data() for video in rendered.get("mm_kwargs", {}).get("video", []))
    return tuple(tuple(video["video_grid_thw"].tolist()) for video in videos if "video_grid_thw" in video)


def first_line(error: BaseException) -> str:
    """Of its message, and not more than fits a record: some errors repeat the pictures they were given."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    return line if len(line) <= 300 else f"{line[:300]}…"
