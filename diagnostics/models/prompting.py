"""From an item and its frames to the model's input tensors.

The wording of the question is ours; everything around it, roles, special tokens, the place of the
video, is the checkpoint's own chat template.
"""

from __future__ import annotations

import copy
import hashlib
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from einops import rearrange
from jaxtyping import UInt8

from diagnostics.data.items import Item
from diagnostics.errors import ControlTokenError, PromptTooLongError
from diagnostics.models.cropping import cropped_notice
from diagnostics.video.selection import Frames, Selection
from diagnostics.video.sound import read_sound

if TYPE_CHECKING:
    from diagnostics.models.loading import LoadedModel

__all__ = [
    "ChatText",
    "Form",
    "Prompt",
    "at_least",
    "chat_text",
    "control_tokens",
    "cut_away",
    "letter_tokens",
    "merged_patch",
    "past_training",
    "prepare_inputs",
    "processed_once",
    "prompt_sha256",
    "question_text",
    "refuse_too_long",
    "shrunk",
    "template_of",
    "video_size",
]

_CLOCK = 1e-3
"""Seconds within which a picture is told its own time."""
_PLACES = ("{question}", "{options}")

Form = Literal["video", "images", "nothing"]
"""One video, a picture a frame, or text alone."""


@dataclass(frozen=True)
class Prompt:
    """Input tensors of one item, on the CPU, and what they were made from.

    Attributes:
        inputs: what the processor returned, ready for `model(**inputs)`.
        text: the chat-formatted text before the processor expanded the video.
        sha256: of the text and of the token ids after expansion: equal prompts have equal hashes.
        question: the question as it stands in the text.
        options: the option lines as they stand in the text; empty for open-ended items.
        n_tokens: prompt length after expansion.
        notices: what the family could not express, one sentence each.
        grids: (units, rows, columns) in patches of each video and then each picture.
        n_visual: visual tokens among the prompt's, line breaks between them left out.
        unit_sizes: of them, those of each unit of the token map, images' among them; None where the prompt
            could not be mapped: `n_visual` is then the number of placeholders.
    """

    inputs: Any
    text: str
    sha256: str
    question: str
    options: str
    n_tokens: int
    notices: tuple[str, ...]
    grids: tuple[tuple[int, int, int], ...]
    n_visual: int
    unit_sizes: tuple[int, ...] | None


def question_text(item: Item, instruction: str) -> tuple[str, str, str]:
    """The user's turn after the video: `(question, option lines, whole text)`.

    An option stands on one line: a line break in it could pass for the next option.

    Args:
        instruction: of items with options: the line that follows them, or a whole template that holds
            `{question}` and `{options}`.
    """
    lines = [" ".join(text.splitlines()) for text in item.options]
    options = "\n".join(f"{letter}. {text}" for letter, text in zip(item.letters, lines, strict=True))
    if options and all(place in instruction for place in _PLACES):
        filled = {"{question}": item.question, "{options}": options}
        # In one pass: a question that holds the word {options} stays as it is.
        text = re.sub("|".join(map(re.escape, _PLACES)), lambda found: filled[found[0]], instruction)
        return item.question, options, text
    parts = [item.question, options, instruction if options else ""]
    return item.question, options, "\n".join(part for part in parts if part)


def template_of(instruction: str) -> dict[str, str]:
    """What every prompt of a run is made by, for its manifest: the template's text and the text's sha256."""
    whole = all(place in instruction for place in _PLACES)
    text = instruction if whole else "\n".join([*_PLACES, instruction])
    return {"text": text, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def prepare_inputs(
    loaded: LoadedModel,
    item: Item,
    frames: Frames,
    *,
    instruction: str,
    max_new_tokens: int,
    form: Form = "video",
    frame_pixels: int | None = None,
) -> Prompt:
    """Chat template, processor and length check for one item.

    Args:
        frames: what is shown; not looked at where `form` is `nothing`.
        form: one video, a picture a frame, or text alone.
        frame_pixels: most pixels of each frame of a video, instead of the checkpoint's own budget, which
            some families spread over the whole video, so that frames shrink as they grow in number. They
            round an odd number of frames before that: give an even one where tokens are to be held.

    Raises:
        ControlTokenError: the item's text holds one of the tokenizer's control tokens.
        PromptTooLongError: prompt and reply would not fit the model's context.
    """
    written = chat_text(loaded.processor, item, len(frames.selection), instruction=instruction, form=form)
    arguments = _visual_arguments(loaded, frames, form, frame_pixels)
    heard: tuple[str, ...] = ()
    if loaded.config.sound:
        sound, heard = _sound(loaded, item, frames, form)
        arguments |= sound
    arguments |= _first_token_once(loaded.processor.tokenizer, written.chat)
    inputs = loaded.processor(text=[written.chat], return_tensors="pt", **arguments)
    inputs.update(loaded.family.forward_arguments(loaded.model, inputs))
    n_tokens = int(inputs["input_ids"].shape[1])
    refuse_too_long(item, n_tokens, max_new_tokens, loaded.context, loaded.config.name)
    positions = loaded.family.positions(loaded.model, inputs)
    if positions is not None:
        inputs["position_ids"] = positions
    # Not at the top: `hooks` imports torch, and prompts for an endpoint are written without it.
    from diagnostics.models.laid_out import mapped, placeholder_count, time_faults, unit_sizes

    layout, unmapped = mapped(loaded, inputs, len(frames.selection) if form == "video" else None)
    sizes = None if layout is None else unit_sizes(layout)
    told: list[str] = []
    if form == "video":
        told = _notices(loaded, inputs, frames)
        told += time_faults(loaded, inputs, frames, layout, told)
    return Prompt(
        inputs=inputs,
        text=written.chat,
        sha256=prompt_sha256(written.chat, inputs["input_ids"].numpy()),
        question=written.question,
        options=written.options,
        n_tokens=n_tokens,
        notices=(*heard, *told, *unmapped),
        grids=tuple(loaded.family.grids(loaded.model, inputs)),
        n_visual=placeholder_count(loaded, inputs) if sizes is None else sum(sizes),
        unit_sizes=sizes,
    )


@dataclass(frozen=True)
class ChatText:
    """A prompt before its pictures are told of: `chat`, and the question and option lines as they stand in
    it."""

    chat: str
    question: str
    options: str


def chat_text(processor: Any, item: Item, n_frames: int, *, instruction: str, form: Form) -> ChatText:
    """The item in the checkpoint's own chat template, one placeholder a video or picture.

    Raises:
        ControlTokenError: the item's text holds one of the tokenizer's control tokens.
    """
    question, options, text = question_text(item, instruction)
    turns = [(turn.role, turn.text) for turn in item.turns] + [("user", text)]
    _refuse_control_tokens(processor.tokenizer, item, [said for _, said in turns])
    messages: list[dict[str, Any]] = [
        {"role": role, "content": [{"type": "text", "text": said}]} for role, said in turns
    ]
    # What is shown opens the conversation: later turns ask about what was shown before.
    shown = {"video": ["video"], "images": ["image"] * n_frames, "nothing": []}[form]
    messages[0]["content"] = [*({"type": kind} for kind in shown), *messages[0]["content"]]
    chat = processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return ChatText(chat, question, options)


def _first_token_once(tokenizer: Any, chat: str) -> dict[str, bool]:
    """What keeps a tokenizer from adding the token that the chat template has begun with (Gemma, Llama)."""
    begins = tokenizer.bos_token is not None and chat.startswith(tokenizer.bos_token)
    return {"add_special_tokens": False} if begins else {}


def letter_tokens(tokenizer: Any, item: Item) -> list[int]:
    """The token of each option's letter; none where one of them is not a single token."""
    encoded = [tokenizer.encode(letter, add_special_tokens=False) for letter in item.letters]
    return [] if any(len(ids) != 1 for ids in encoded) else [ids[0] for ids in encoded]


_SHORTER = "Lower sampling.budget or model.max_pixels."


def refuse_too_long(
    item: Item, n_tokens: int, max_new_tokens: int, context: int, name: str, remedy: str = _SHORTER
) -> None:
    """Raise `PromptTooLongError` where prompt and reply would not fit the context of the model `name`."""
    if n_tokens + max_new_tokens > context:
        raise PromptTooLongError(
            f"The prompt has {n_tokens} tokens and the reply may take {max_new_tokens}; "
            f"{name} holds {context}.",
            remedy=remedy,
            item_id=item.id,
            path=item.video,
        )


def prompt_sha256(chat: str, token_ids: npt.ArrayLike) -> str:
    """Hash of a prompt's text and of its token ids after expansion: equal prompts have equal hashes."""
    digest = hashlib.sha256(chat.encode())
    digest.update(np.asarray(token_ids, dtype=np.int64).tobytes())
    return digest.hexdigest()


def processed_once(loaded: LoadedModel) -> LoadedModel:
    """The same model with a processor that works on pictures once, for prompts that all show the same frames.

    The text goes its whole way each time, so that the prompts' tokens are the processor's own. Which pictures
    are given is not looked at after the first call: use it for one group of questions and let go of it.
    """
    processor = copy.copy(loaded.processor)
    processor.video_processor = _Once(processor.video_processor)
    processor.image_processor = _Once(processor.image_processor)
    if hasattr(processor, "feature_extractor"):
        processor.feature_extractor = _Once(processor.feature_extractor)
    return replace(loaded, processor=processor)


class _Once:
    """A video or image processor that gives its first result again."""

    def __init__(self, plain: Any) -> None:
        self._plain, self._result = plain, None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if self._result is None:
            self._result = self._plain(*arguments, **options)
        return copy.copy(self._result)


def past_training(loaded: LoadedModel, largest: int) -> tuple[str, ...]:
    """What to say where a prompt's largest position lies past those the model was trained on."""
    if largest < loaded.trained_positions:
        return ()
    return (
        f"positions_past_training: the largest position is {largest}, "
        f"{loaded.config.name} was trained up to {loaded.trained_positions}",
    )


def _visual_arguments(
    loaded: LoadedModel, frames: Frames, form: Form, frame_pixels: int | None
) -> dict[str, Any]:
    """What the processor is given beside the text."""
    if form == "nothing":
        return {}
    if form == "images":
        return loaded.family.image_arguments(list(_channels_first(frames.pixels)))
    pixels, selection = at_least(frames, loaded.family.least_frames)
    # A list for each prompt: smolvlm of transformers 5.16 takes a bare video for as many as it has frames.
    arguments = {"videos": [[_channels_first(pixels)]], **loaded.family.video_arguments(selection)}
    if loaded.family.takes_pixel_cap:
        arguments["cap_pixels_per_frame"] = loaded.config.cap_pixels_per_frame
    if frame_pixels is not None:
        current = video_size(loaded.processor)
        if size := loaded.family.frame_limit(frame_pixels, len(selection), current):
            arguments["size"] = size
    elif loaded.family.size_with_call:
        arguments["size"] = video_size(loaded.processor)
    return arguments


def _sound(
    loaded: LoadedModel, item: Item, frames: Frames, form: Form
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What the processor is given of the item's sound, and what is to be said of it. It is the sound of the
    item's own video, within its clip where it has one, whichever frames are shown."""
    if form != "video":
        return {}, (f"no_sound: {'text' if form == 'nothing' else 'pictures'} alone, no video to hear",)
    path = item.audio or item.video
    rate = int(loaded.processor.feature_extractor.sampling_rate)
    samples = read_sound(path, rate)
    if samples is not None and item.clip is not None:
        samples = samples[slice(*(round(seconds * rate) for seconds in item.clip))]
    if samples is None or not len(samples):
        return {}, (f"no_sound: {path.name} has none",)
    told = _heard_beside(path.name, item, frames)
    return loaded.family.sound_arguments(loaded.processor, samples), told


def _heard_beside(name: str, item: Item, frames: Frames) -> tuple[str, ...]:
    """Where pictures are not the video's own at their own times, that its sound is heard all the same."""
    selection = frames.selection
    true = selection.true_seconds
    own = np.array([slot.source == item.video_id for slot in selection.slots])
    own &= np.abs(true - selection.shown_seconds) < _CLOCK  # NaN of a blank picture is not
    own &= np.fmax.accumulate(true) <= true
    if own.all():
        return ()
    return (
        f"sound_unchanged: {name} is heard as it is, {int((~own).sum())} of {len(own)} pictures are not its"
        " own or not at their times",
    )


def _channels_first(
    pixels: UInt8[np.ndarray, "slot height width channel"],
) -> UInt8[np.ndarray, "slot channel height width"]:
    return rearrange(pixels, "slot height width channel -> slot channel height width")


def _notices(loaded: LoadedModel, inputs: Any, frames: Frames) -> list[str]:
    """What is to be said of a video by its family, and of its size."""
    return [
        *loaded.family.notices(frames.selection, loaded.model, inputs),
        *cut_away(loaded, frames),
        *squeezed(loaded, frames),
        *shrunk(loaded.family.shown_size(loaded.processor, inputs), merged_patch(loaded.processor), frames),
    ]


def cut_away(loaded: LoadedModel, frames: Frames) -> list[str]:
    """What the processor leaves of the frames where it shows their middle alone."""
    height, width = frames.pixels.shape[1:3]
    return cropped_notice((height, width), loaded.family.middle_shown(loaded.processor, height, width))


def squeezed(loaded: LoadedModel, frames: Frames) -> list[str]:
    """What a processor of one size for all frames makes of their shape and resolution; frames that are only
    made larger lose nothing."""
    fixed = loaded.family.fixed_size(loaded.processor)
    height, width = loaded.family.middle_shown(loaded.processor, *frames.pixels.shape[1:3])
    if fixed is None:
        return []
    # Pixels that the frame's shape would have at the fixed height, within the rounding of one.
    kept_shape = abs(fixed[0] * width / height - fixed[1]) < 1
    if kept_shape and fixed[0] >= height and fixed[1] >= width:
        return []
    return [f"fixed_size: {width}x{height} shown as {fixed[1]}x{fixed[0]}, as frames of any shape are"]


def control_tokens(tokenizer: Any) -> set[str]:
    """What may not stand in an item's text: it would be read as one of the tokenizer's own tokens."""
    return {*tokenizer.all_special_tokens, *tokenizer.get_added_vocab()}


def _refuse_control_tokens(tokenizer: Any, item: Item, texts: list[str]) -> None:
    """A data file must not end a turn, or put a second video where none is."""
    tokens = control_tokens(tokenizer)
    found = sorted(token for token in tokens if any(token in text for text in texts))
    if found:
        raise ControlTokenError(
            f"The text holds the model's control token {found[0]!r}.",
            remedy="Remove or rewrite it in the data file.",
            item_id=item.id,
            path=item.video,
        )


def video_size(processor: Any) -> dict[str, int]:
    """The video processor's `size`; nothing where it has none, as of families that size frames by rules of
    their own."""
    given = dict(getattr(processor.video_processor, "size", None) or {})
    return {name: int(value) for name, value in given.items() if value}


def merged_patch(processor: Any) -> int:
    """Pixels a side of what becomes one token; 1 where the video processor does not say."""
    video = processor.video_processor
    return int(getattr(video, "patch_size", 1)) * int(getattr(video, "merge_size", 1))


def shrunk(shown: tuple[int, int] | None, merged: int, frames: Frames) -> list[str]:
    """Whether the processor's pixel limits made the pictures smaller, beyond rounding to whole patches.

    Args:
        shown: height and width the frames were resized to; None where the family has one size for all.
        merged: pixels a side of what becomes one token.
    """
    height, width = frames.pixels.shape[1:3]
    if shown is None or (shown[0] > height - merged and shown[1] > width - merged):
        return []
    return [f"shrunk_by_pixel_limits: {width}x{height} shown as {shown[1]}x{shown[0]}"]


def at_least(frames: Frames, least: int) -> tuple[np.ndarray, Selection]:
    """Frames and selection with a single frame given `least` times, where a processor refuses one alone.

    Of families with two frames a unit it is what processors make of any odd number: the last frame's unit is
    filled with the frame itself.
    """
    if len(frames.selection) > 1 or least == 1:
        return frames.pixels, frames.selection
    again = replace(frames.selection, slots=frames.selection.slots * least)
    return np.repeat(frames.pixels, least, axis=0), again
