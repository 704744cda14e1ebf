"""What is asked of an engine and what it gives back: the same for every engine.

An engine is a module of this package with a function `engine(...)` (see `diagnostics.models.backends`).
Requests reach it a group at a time: questions that are shown the same frames of one video, groups in the
order of videos. What questions of a group can share (a reading, an encoding, a prefill, an upload) is the
engine's affair. It answers in futures: one that works in this thread hands back finished ones, one that works
elsewhere takes further groups meanwhile, as many as it says it can hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

from diagnostics.data.items import Item
from diagnostics.models.prompting import Form
from diagnostics.video.selection import Frames

__all__ = ["Answer", "Engine", "PromptSettings", "Reply", "Request"]


@dataclass(frozen=True)
class PromptSettings:
    """How a prompt is made of an item and its frames.

    Attributes:
        instruction: the line after the options, or a whole template (`prompting.question_text`).
        max_new_tokens: of the reply, at most.
        form: one video, a picture a frame, or text alone.
        frame_pixels: most pixels of each frame, or None for the checkpoint's own budget.
    """

    instruction: str
    max_new_tokens: int
    form: Form = "video"
    frame_pixels: int | None = None


@dataclass(frozen=True, eq=False)
class Request:
    """One question to be answered.

    Attributes:
        item: what is asked.
        condition: under which condition, for the engine's messages and its cache keys; `{}` where there is
        one.
        frames: what is shown. Requests of one group hold the same object.
        prompt: how the prompt is made.
    """

    item: Item
    condition: Mapping[str, Any]
    frames: Frames
    prompt: PromptSettings


@dataclass(frozen=True)
class Reply:
    """What the model said.

    Attributes:
        text: the reply without special tokens.
        option_logits: logit of each option's letter as the first token of the reply; empty where the item has
            no options or a letter is not one token of this tokenizer.
        option_logprobs: the same as log-probabilities over the whole vocabulary.
        n_tokens: tokens generated.
        cut: it ended because it had as many tokens as it may have.
    """

    text: str
    option_logits: tuple[float, ...]
    option_logprobs: tuple[float, ...]
    n_tokens: int
    cut: bool


@dataclass(frozen=True)
class Written:
    """A reply, token by token.

    Attributes:
        reply: what the model said by itself.
        tokens: all that was written; what follows the model's own end was written because it had to go on.
        own: how many of them came of the model's own choice to go on or to end. Of a reply that had to go on,
            the last of these stands in the place of its end.
    """

    reply: Reply
    tokens: tuple[int, ...]
    own: int


@dataclass(frozen=True)
class Answer:
    """What the model said, and what it took.

    Attributes:
        text: the reply without special tokens.
        option_logprobs: natural log-probability of each option's letter as the first token of the reply, over
            the whole vocabulary; empty where the item has no options, a letter is not one token, or the
            engine does not tell.
        option_logits: the same before normalisation; empty where the engine does not tell.
        n_prompt_tokens: after expansion of the video; None where the engine does not tell.
        n_visual_tokens: of them, those of pictures.
        unit_sizes: of them, those of each unit of the token map; None where the engine does not tell.
        n_new_tokens: generated.
        grid: for each video or image (time, height, width) in patches before merging; empty where not told.
        prompt_ids: the prompt's token ids after expansion, where the engine sees them.
        prompt_sha256: of the prompt's text and token ids, where the engine sees them.
        cut: the reply ended because it had as many tokens as it may have.
        together: how many questions were answered in the same pass, this one among them.
        seconds: wall-clock time by what for (`prepare`, `generate`); time that questions share is divided
        evenly.
        notices: what a reader of the answer should know, as `kind: details`.
    """

    text: str
    option_logprobs: tuple[float, ...] = ()
    option_logits: tuple[float, ...] = ()
    n_prompt_tokens: int | None = None
    n_visual_tokens: int | None = None
    unit_sizes: tuple[int, ...] | None = None
    n_new_tokens: int | None = None
    grid: tuple[tuple[int, ...], ...] = ()
    prompt_ids: tuple[int, ...] = ()
    prompt_sha256: str | None = None
    cut: bool = False
    together: int = 1
    seconds: Mapping[str, float] = field(default_factory=dict)
    notices: tuple[str, ...] = ()


class Engine(Protocol):
    """Answers requests. A context manager: leaving it drops what is waiting and frees what it holds.

    Attributes:
        together: most requests of one group.
        in_flight: most groups that may be waiting at once; 1 for an engine that works in the caller's thread.
    """

    together: int
    in_flight: int

    def start(self) -> None:
        """Load, launch or reach what answers. Called once, before the first group; a run with nothing left to
        ask never calls it. How long it takes is no part of what answering takes."""
        ...

    def submit(self, group: Sequence[Request]) -> Sequence[Future[Answer]]:
        """Take the requests of one group: a future for each, in their order.

        A future holds the answer or a `DiagnosticsError`: about the item (`ModelError`...), which is
        recorded, or about the run (`RunError`), which ends it. A question is tried again by the engine, if at
        all.
        """
        ...

    def flush(self) -> None:
        """Answer what is held back in the hope of more to go with it: nothing more comes before that."""
        ...

    def __enter__(self) -> Engine: ...

    def __exit__(self, *error: object) -> None: ...
