"""From frames to input tensors, through the real processors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from diagnostics.data.items import Item, Turn
from diagnostics.errors import ModelError, PromptTooLongError
from diagnostics.models.config import ModelConfig
from diagnostics.models.families import family_of, known_families
from diagnostics.models.loading import LoadedModel, load_model
from diagnostics.models.prompting import prepare_inputs
from diagnostics.video.selection import BLANK, Frames, Selection, Slot


@pytest.fixture(scope="module")
def tiny() -> LoadedModel:
    return load_model(ModelConfig(name="tiny_random", path="tiny_random", dtype="float32", device="cpu"))


def frames(seconds: list[float], fps: float = 8.0, indices: list[int] | None = None) -> Frames:
    chosen = [round(s * fps) for s in seconds] if indices is None else indices
    slots = tuple(Slot("v", i, s, s) for i, s in zip(chosen, seconds, strict=True))
    pixels = np.random.default_rng(0).integers(0, 256, (len(slots), 96, 96, 3), dtype=np.uint8)
    return Frames(pixels, Selection(slots, "test", fps, 10_000, 1250.0, len(slots)))


def item(**changes: object) -> Item:
    values = {"id": "q", "video": Path("v.mp4"), "video_id": "v", "question": "What colour?"}
    return Item(**{**values, "options": ("red", "blue"), "answer": "A", **changes})  # type: ignore[arg-type]


def prompt_of(tiny: LoadedModel, asked: Item, shown: Frames, room: int = 8) -> str:
    prompt = prepare_inputs(tiny, asked, shown, instruction="One letter.", max_new_tokens=room)
    text = tiny.processor.tokenizer.decode(prompt.inputs["input_ids"][0])
    return text.replace("<|video_pad|>", "")


def test_times_in_the_prompt_are_those_of_the_frames(tiny: LoadedModel) -> None:
    text = prompt_of(tiny, item(), frames([0.0, 2.0, 10.0, 12.0]))
    assert "<1.0 seconds>" in text
    assert "<11.0 seconds>" in text
    assert text.count(" seconds>") == 2


def test_an_odd_number_of_frames_is_not_resampled_and_not_changed(tiny: LoadedModel) -> None:
    shown = frames([0.0, 2.0, 10.0, 12.0, 20.0, 22.0, 30.0])
    before = shown.selection.frame_indices.tolist()
    text = prompt_of(tiny, item(), shown)
    assert [f"<{t} seconds>" in text for t in ("1.0", "11.0", "21.0", "30.0")] == [True] * 4
    assert shown.selection.frame_indices.tolist() == before


def test_variable_frame_rate_is_told_by_real_times(tiny: LoadedModel) -> None:
    """Frame 3 at 8 fps would be 0.4 s; the file says 5.0."""
    text = prompt_of(tiny, item(), frames([0.0, 5.0, 9.0, 9.4], indices=[0, 3, 4, 5]))
    assert "<2.5 seconds>" in text
    assert "<9.2 seconds>" in text


def test_blank_pictures_keep_the_clock(tiny: LoadedModel) -> None:
    shown = frames([0.0, 2.0, 10.0, 12.0])
    slots = tuple(Slot(BLANK, -1, float("nan"), s.shown_seconds) for s in shown.selection.slots)
    selection = Selection(slots, "blank", 8.0, 10_000, 1250.0, 4)
    assert prompt_of(tiny, item(), Frames(shown.pixels, selection)) == prompt_of(tiny, item(), shown)


def test_question_options_and_instruction_follow_the_video(tiny: LoadedModel) -> None:
    text = prompt_of(tiny, item(), frames([0.0, 2.0]))
    assert text.endswith("What colour?\nA. red\nB. blue\nOne letter.<|im_end|>\n<|im_start|>assistant\n"), (
        text
    )


def test_earlier_turns_come_first_and_the_video_opens_the_conversation(tiny: LoadedModel) -> None:
    turns = (Turn("user", "Describe it."), Turn("assistant", "A procedure."))
    text = prompt_of(tiny, item(turns=turns, options=(), answer=None), frames([0.0, 2.0]))
    order = [text.index(part) for part in (" seconds>", "Describe it.", "A procedure.", "What colour?")]
    assert order == sorted(order)
    assert "One letter." not in text


def test_a_prompt_longer_than_the_context_is_refused(tiny: LoadedModel) -> None:
    with pytest.raises(PromptTooLongError, match=r"Lower sampling\.budget") as raised:
        prompt_of(tiny, item(id="long one"), frames([0.0, 2.0]), room=tiny.context)
    assert raised.value.item_id == "long one"


def test_equal_prompts_have_equal_hashes(tiny: LoadedModel) -> None:
    def digest(asked: Item, shown: Frames) -> str:
        return prepare_inputs(tiny, asked, shown, instruction="x", max_new_tokens=4).sha256

    shown = frames([0.0, 2.0])
    assert digest(item(), shown) == digest(item(id="another"), shown)
    assert digest(item(), shown) != digest(item(question="What colour ?"), shown)
    assert digest(item(), shown) != digest(item(), frames([0.0, 4.0]))


def test_pixel_limits_reach_the_processor() -> None:
    small = load_model(
        ModelConfig(name="t", path="tiny_random", dtype="float32", device="cpu", max_pixels=4 * 64 * 64)
    )
    prompt = prepare_inputs(small, item(), frames([0.0, 2.0, 4.0, 6.0]), instruction="x", max_new_tokens=4)
    assert prompt.inputs["video_grid_thw"].tolist() == [[2, 4, 4]]


def test_a_checkpoint_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"model\.path"):
        load_model(ModelConfig(name="x", path=str(tmp_path / "nothing"), local_files_only=True))


def test_an_architecture_without_an_adapter_names_the_near_match() -> None:
    assert set(known_families()) >= {"qwen3_vl", "qwen2_5_vl"}
    with pytest.raises(ModelError, match="Did you mean 'qwen3_vl'"):
        family_of("qwen3_vll")
