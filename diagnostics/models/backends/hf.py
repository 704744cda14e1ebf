"""Answers through transformers, in this process: greedy decoding after one prefill.

`answer` asks one question; its prefill is the forward that hooks observe: nothing is run twice. `HfEngine`
asks the questions of a video together (`shared_prefix`), lone questions of different videos in a padded batch
where it is told to (`padded_batch`), and checks on the first pass of each kind that this changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from pydantic import PositiveInt
from pydantic.dataclasses import dataclass

from diagnostics.data.items import Item
from diagnostics.errors import DiagnosticsError, OutOfMemoryError, RunError, SharingError
from diagnostics.models.backends.padded_batch import answer_padded
from diagnostics.models.backends.requests import Answer, Reply, Request, Written
from diagnostics.models.backends.shared_prefix import (
    Decoded,
    answer_together,
    check_positions,
    common_prefix,
    prompt_positions,
)
from diagnostics.models.config import ModelConfig
from diagnostics.models.loading import LoadedModel
from diagnostics.models.memory import free_memory, out_of_memory
from diagnostics.models.prompting import (
    Prompt,
    letter_tokens,
    past_training,
    prepare_inputs,
    processed_once,
)
from diagnostics.strict import STRICT
from hooks.kept_logits import last_logits_only

__all__ = ["Config", "HfEngine", "answer", "engine", "written"]

_TOLERANCE = 1e-4
"""Largest difference of logits, as a share of the largest one, between questions asked together and alone; or
four roundings of the model's number format, where those are coarser."""


def answer(loaded: LoadedModel, inputs: Any, item: Item, max_new_tokens: int) -> Reply:
    """Generate greedily from prepared inputs (one row, on the model's device)."""
    return written(loaded, inputs, item, max_new_tokens).reply


@torch.inference_mode()
def written(
    loaded: LoadedModel, inputs: Any, item: Item, max_new_tokens: int, min_new_tokens: int = 0
) -> Written:
    """As `answer`, and every token; with `min_new_tokens` a reply that ends sooner has to go on.

    Logits of every step are held until the end: vocabulary x tokens x 4 bytes.
    """
    least = {"min_new_tokens": min_new_tokens} if min_new_tokens else {}
    with last_logits_only(loaded.model):
        out: Any = loaded.model.generate(
            **inputs,
            **least,
            max_new_tokens=max_new_tokens,
            do_sample=False,
            return_dict_in_generate=True,
            output_logits=True,
        )
    tokens = out.sequences[0, inputs["input_ids"].shape[1] :].tolist()
    said, own = tokens, len(tokens)
    ends = _ends(loaded)
    for place, logits in enumerate(out.logits[:min_new_tokens]):
        if int(logits[0].argmax()) in ends and tokens[place] not in ends:
            said, own = tokens[:place], place + 1
            break
    return Written(_reply(loaded, item, out.logits[0][0], said, max_new_tokens), tuple(tokens), own)


def _reply(
    loaded: LoadedModel, item: Item, first_logits: torch.Tensor, tokens: list[int], max_new_tokens: int
) -> Reply:
    tokenizer = loaded.processor.tokenizer
    logits, logprobs = _options(tokenizer, item, first_logits)
    return Reply(
        text=tokenizer.decode(tokens, skip_special_tokens=True).strip(),
        option_logits=logits,
        option_logprobs=logprobs,
        n_tokens=len(tokens),
        cut=len(tokens) == max_new_tokens and tokens[-1] not in _ends(loaded),
    )


def _ends(loaded: LoadedModel) -> set[int]:
    """Tokens after which generation stops."""
    ends = loaded.model.generation_config.eos_token_id
    return set(ends) if isinstance(ends, list | tuple) else {ends}


def _options(tokenizer: Any, item: Item, first: torch.Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    letters = letter_tokens(tokenizer, item)
    if not letters:
        return (), ()
    index = torch.tensor(letters, device=first.device)
    scores = first.float()
    logprobs = torch.log_softmax(scores, dim=-1)
    return tuple(scores[index].tolist()), tuple(logprobs[index].tolist())


@dataclass(frozen=True, config=STRICT)
class Config:
    """Parameters of this engine.

    Attributes:
        sharing: questions that are shown the same frames share one preparation, one vision encoding and one
            prefill of the video. Checked on the first video; off, each is asked by itself.
        together: so many questions of a video at most in one pass.
        batch: so many questions that share nothing, each of another video, in one padded pass, those of like
            length together. Checked on the first such pass.
    """

    sharing: bool = True
    together: PositiveInt = 16
    batch: PositiveInt = 1


def engine(
    load: Callable[[], LoadedModel], model: ModelConfig, settings: Config, note: Callable[[str, Any], None]
) -> HfEngine:
    """See `diagnostics.models.backends`."""
    del model  # `load` knows it
    return HfEngine(load, settings, note)


class HfEngine:
    """transformers in this thread: a group's questions in one pass, or each alone where sharing is off.

    With `batch` above 1, a question alone in its group is held until there are twice as many as one pass
    takes, so that those of like length go together.

    Out of memory, the questions of a pass are tried again one by one; one that still does not fit is refused
    with `OutOfMemoryError`. Nothing is made smaller.
    """

    def __init__(
        self, load: Callable[[], LoadedModel], config: Config, note: Callable[[str, Any], None]
    ) -> None:
        self._load, self._note = load, note
        self.together = config.together if config.sharing else 1
        self._batch = config.batch
        self.in_flight = 1 if config.batch == 1 else 2 * config.batch
        self._held: list[tuple[Request, Future[Answer]]] = []
        self._checked: set[str] = set()

    def __enter__(self) -> HfEngine:
        return self

    def start(self) -> None:
        """Load the model."""
        self._load()

    def __exit__(self, *error: object) -> None:
        free_memory()

    def submit(self, group: Sequence[Request]) -> Sequence[Future[Answer]]:
        """See `requests.Engine`: the futures are done, but for a question that is held."""
        futures: list[Future[Answer]] = [Future() for _ in group]
        if self._batch > 1 and len(group) == 1:
            self._held.append((group[0], futures[0]))
        else:
            _settle(futures, self._fitting(group, padded=False))
        return futures

    def flush(self) -> None:
        """Answer the questions that are held."""
        held, self._held = self._held, []
        held.sort(key=lambda one: (one[0].frames.pixels.size, len(one[0].item.question)))
        while held:
            passed, held = held[: self._batch], held[self._batch :]
            futures = [future for _, future in passed]
            try:
                _settle(futures, self._fitting([request for request, _ in passed], padded=True))
            except Exception as error:  # noqa: BLE001 - handed to who waits, as if raised by `submit`
                self._one_by_one(passed, error)

    def _one_by_one(self, passed: Sequence[tuple[Request, Future[Answer]]], error: Exception) -> None:
        """A fault of one prompt is not that of other videos' prompts; one that is about the run is all's."""
        for request, future in passed:
            try:
                if isinstance(error, RunError):
                    raise error
                _settle([future], self._fitting([request], padded=False))
            except Exception as own:  # noqa: BLE001 - as above
                future.set_exception(own)

    def _fitting(self, group: Sequence[Request], *, padded: bool) -> list[Answer | DiagnosticsError]:
        """Answers to one pass; each by itself where memory runs out for all of them together."""
        try:
            return self._answer(group, padded=padded)
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            message = (str(error).strip().splitlines() or ["out of memory"])[0]
        free_memory()
        if len(group) == 1:
            return [_too_large(group[0], message)]
        told = f"retried_alone: memory ran out with {len(group)} questions together"
        found: list[Answer | DiagnosticsError] = []
        for request in group:
            (one,) = self._fitting([request], padded=False)
            found.append(replace(one, notices=(*one.notices, told)) if isinstance(one, Answer) else one)
        return found

    def _answer(self, group: Sequence[Request], *, padded: bool) -> list[Answer | DiagnosticsError]:
        loaded = self._load()
        started = time.perf_counter()
        once = processed_once(loaded) if len(group) > 1 and not padded else loaded
        prompts = [_prepared(once, request) for request in group]
        asked = [
            (request, one) for request, one in zip(group, prompts, strict=True) if isinstance(one, Prompt)
        ]
        prepare = (time.perf_counter() - started) / len(group)
        started = time.perf_counter()
        alone = len(asked) < 2 or not (padded or loaded.family.packs(loaded.model))
        replies = iter(self._generate(loaded, asked, padded=padded, alone=alone))
        generate = (time.perf_counter() - started) / max(1, len(asked))
        found: list[Answer | DiagnosticsError] = []
        for prompt in prompts:
            if isinstance(prompt, DiagnosticsError):
                found.append(prompt)
                continue
            reply, largest = next(replies)
            told = _answered(prompt, reply, past_training(loaded, largest))
            seconds = {"prepare": prepare, "generate": generate}
            found.append(replace(told, together=1 if alone else len(asked), seconds=seconds))
        return found

    def _generate(
        self, loaded: LoadedModel, asked: Sequence[tuple[Request, Prompt]], *, padded: bool, alone: bool
    ) -> list[tuple[Reply, int]]:
        """Each reply with the largest position of its prompt."""
        if alone:
            if len(asked) > 1 and "sharing" not in self._checked:
                reason = "layers that do not attend to all that lies behind, or code of the checkpoint's own"
                self._note("sharing", {"questions": 1, "reason": reason})
                self._checked.add("sharing")
            found = []
            for request, prompt in asked:
                largest = int(prompt_positions(loaded, prompt.inputs).max())
                inputs = prompt.inputs.to(loaded.device)
                found.append((answer(loaded, inputs, request.item, request.prompt.max_new_tokens), largest))
            return found
        most = max(request.prompt.max_new_tokens for request, _ in asked)
        together = answer_padded if padded else answer_together
        decoded = together(loaded, [prompt.inputs for _, prompt in asked], most, _ends(loaded))
        key: Literal["sharing", "batch"] = "batch" if padded else "sharing"
        lengths = {prompt.n_tokens for _, prompt in asked}
        if key not in self._checked and (
            key == "sharing" or len(lengths) > 1
        ):  # without padding nothing shows
            self._note(key, self._check(loaded, asked, decoded, key))
            self._checked.add(key)
        return [
            (_reply(loaded, request.item, one.first_logits, one.tokens, most), one.largest_position)
            for (request, _), one in zip(asked, decoded, strict=True)
        ]

    @torch.inference_mode()
    def _check(
        self,
        loaded: LoadedModel,
        asked: Sequence[tuple[Request, Prompt]],
        decoded: Sequence[Decoded],
        key: Literal["sharing", "batch"],
    ) -> dict[str, Any]:
        """That asking together changes nothing: one question of the first pass, by the plain road: the last,
        which has all others before it, or the one with the most padding.

        Returns:
            What was found, for the manifest.

        Raises:
            SharingError: its tokens or pictures differ when prepared by itself, or its logits do; or
                positions are not those of each prompt by itself.
        """
        remedy = "Set backend.sharing=false." if key == "sharing" else "Set backend.batch=1."
        if key == "sharing":
            check_positions(loaded, [prompt.inputs for _, prompt in asked])
        place = len(asked) - 1 if key == "sharing" else int(np.argmin([one.n_tokens for _, one in asked]))
        request, prompt = asked[place]
        plain = prepare_inputs(loaded, request.item, request.frames, **_settings(request)).inputs
        for name, value in plain.items():
            if isinstance(value, torch.Tensor) and not torch.equal(value, prompt.inputs[name]):
                raise SharingError(
                    f"Prepared with others, the prompt has another {name} than prepared alone.",
                    remedy=remedy,
                    item_id=request.item.id,
                )
        logits = loaded.model(**plain.to(loaded.device), logits_to_keep=1, use_cache=False).logits[0, -1]
        difference = float((logits.float() - decoded[place].first_logits).abs().max())
        allowed = max(_TOLERANCE, 4 * torch.finfo(logits.dtype).eps) * float(logits.abs().max())
        if not difference <= allowed:
            raise SharingError(
                f"Asked together, a question's logits differ by {difference:.3g} from those asked alone; "
                f"rounding explains {allowed:.3g}.",
                remedy=remedy,
                item_id=request.item.id,
            )
        prompts = [one.inputs for _, one in asked]
        lengths = {"longest_prompt": max(one["input_ids"].shape[1] for one in prompts)}
        if key == "sharing":
            lengths = {"prefix_tokens": common_prefix(loaded, prompts), "prompt_tokens": prompt.n_tokens}
        return {
            "questions": len(asked),
            **lengths,
            "max_logit_difference": difference,
            "allowed": allowed,
        }


def _settle(futures: Sequence[Future[Answer]], found: Sequence[Answer | DiagnosticsError]) -> None:
    for future, one in zip(futures, found, strict=True):
        if isinstance(one, DiagnosticsError):
            future.set_exception(one)
        else:
            future.set_result(one)


def _settings(request: Request) -> dict[str, Any]:
    prompt = request.prompt
    return {
        "instruction": prompt.instruction,
        "max_new_tokens": prompt.max_new_tokens,
        "form": prompt.form,
        "frame_pixels": prompt.frame_pixels,
    }


def _prepared(loaded: LoadedModel, request: Request) -> Prompt | DiagnosticsError:
    try:
        return prepare_inputs(loaded, request.item, request.frames, **_settings(request))
    except DiagnosticsError as error:
        return error


def _too_large(request: Request, message: str) -> OutOfMemoryError:
    return OutOfMemoryError(
        f"Out of memory with {len(request.frames.selection)} frames: {message}",
        remedy="Lower sampling.budget or model.max_pixels, or spread the model with model.device_map=auto.",
        item_id=request.item.id,
        path=request.item.video,
    )


def _answered(prompt: Prompt, reply: Reply, notices: tuple[str, ...]) -> Answer:
    return Answer(
        text=reply.text,
        option_logprobs=reply.option_logprobs,
        option_logits=reply.option_logits,
        n_prompt_tokens=prompt.n_tokens,
        n_visual_tokens=prompt.n_visual,
        unit_sizes=prompt.unit_sizes,
        n_new_tokens=reply.n_tokens,
        grid=prompt.grids,
        prompt_ids=tuple(prompt.inputs["input_ids"][0].tolist()),
        prompt_sha256=prompt.sha256,
        cut=reply.cut,
        notices=(*prompt.notices, *notices),
    )
