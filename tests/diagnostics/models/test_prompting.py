"""From frames to input tensors, through the real processors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from diagnostics.data.items import Item, Turn
from diagnostics.errors import ModelError, PromptTooLongError
from diagnostics.models.config import ModelConfig
from diagnostics.models.loading import LoadedModel, load_model
from diagnostics.models.prompting import Form, Prompt, prepare_inputs
from diagnostics.video.selection import BLANK, Frames, Selection, Slot
from hooks.errors import UnsupportedModelError
from hooks.families import families, family_named

from .conftest import FAMILIES, a_question, uniform


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
    assert set(families()) >= {"qwen3_vl", "qwen2_5_vl"}
    with pytest.raises(UnsupportedModelError, match="Did you mean 'qwen3_vl"):
        family_named("qwen3_vll")


def visual(prepared: Prompt) -> dict[str, list[list[int]]]:
    """The grids of what is shown, by name."""
    return {name: grid.tolist() for name, grid in prepared.inputs.items() if name.endswith("_grid_thw")}


@pytest.mark.parametrize("family", FAMILIES)
def test_pictures_are_a_video_or_images_or_nothing(loaded: dict[str, LoadedModel], family: str) -> None:
    model, shown = loaded[family], uniform(5, fps=8.0, source_frames=400, size=(128, 192))
    told: dict[Form, Prompt] = {
        form: prepare_inputs(model, a_question(), shown, instruction="x", max_new_tokens=4, form=form)
        for form in ("video", "images", "nothing")
    }
    ((units, _, _),) = visual(told["video"])["video_grid_thw"]
    assert units == 3
    images = visual(told["images"])["image_grid_thw"]
    assert len(images) == 5
    assert {one[0] for one in images} == {1}
    assert visual(told["nothing"]) == {}
    tokenizer = model.processor.tokenizer
    for form, pad, other in (("video", "video", "image"), ("images", "image", "video"), ("nothing", "", "")):
        one = told[form]
        count = one.inputs["input_ids"][0].tolist().count
        grids = [cell for some in visual(one).values() for cell in some]
        expected = sum(t * h * w for t, h, w in grids) // model.processor.video_processor.merge_size**2
        pads = {name: tokenizer.convert_tokens_to_ids(f"<|{name}_pad|>") for name in ("video", "image")}
        assert sum(map(count, pads.values())) == expected
        assert not pad or count(pads[pad]) == expected
        assert not other or count(pads[other]) == 0
        assert one.inputs["input_ids"].shape[1] == one.n_tokens
        assert one.question in one.text
        assert (one.notices == ()) or form == "video", "what the family says of a video's clock and size"
    assert len({one.sha256 for one in told.values()}) == 3


@pytest.mark.parametrize("family", FAMILIES)
def test_without_pictures_the_prompt_is_the_text_alone(loaded: dict[str, LoadedModel], family: str) -> None:
    """Whatever the frames: none are needed."""
    model = loaded[family]
    some, none = uniform(4, fps=8.0, source_frames=400), uniform(0, fps=8.0, source_frames=400)
    hashes = {
        prepare_inputs(model, a_question(), shown, instruction="x", max_new_tokens=4, form="nothing").sha256
        for shown in (some, none)
    }
    assert len(hashes) == 1


@pytest.mark.parametrize("family", FAMILIES)
def test_images_keep_their_order_and_their_own_size(loaded: dict[str, LoadedModel], family: str) -> None:
    """Each image's patches are those that the image processor makes of that picture alone."""
    model, shown = loaded[family], uniform(3, fps=8.0, source_frames=400, size=(128, 192))
    made = prepare_inputs(model, a_question(), shown, instruction="x", max_new_tokens=4, form="images").inputs
    sizes = made["image_grid_thw"].prod(dim=1).tolist()
    for picture, patches in zip(shown.pixels, made["pixel_values"].split(sizes), strict=True):
        alone = model.processor.image_processor(images=[Image.fromarray(picture)], return_tensors="pt")
        assert np.allclose(patches, alone["pixel_values"], atol=1e-5)


@pytest.mark.parametrize(("most", "height", "width"), [(28, 720, 1280), (64, 720, 1280), (64, 480, 854)])
def test_qwen3_holds_the_tokens_of_a_unit_where_frames_are_held(
    loaded: dict[str, LoadedModel], most: int, height: int, width: int
) -> None:
    """Its own budget gives a unit fewer tokens the more frames there are; `frame_pixels` holds them.

    The most frames have what the budget leaves them, and fewer frames the same.
    """
    model = loaded["qwen3_vl"]
    current = dict(model.processor.video_processor.size)
    pixels = model.family.pixels_left(most, current)
    per_unit: dict[int | None, list[int]] = {None: [], pixels: []}
    for frame_pixels, found in per_unit.items():
        for n in (2, 8, most):
            shown = uniform(n, fps=25.0, source_frames=90_000, size=(height, width))
            prepared = prepare_inputs(
                model, a_question(), shown, instruction="x", max_new_tokens=4, frame_pixels=frame_pixels
            )
            ((_, rows, cols),) = visual(prepared)["video_grid_thw"]
            found.append(rows * cols // 4)
    held, own = per_unit[pixels], per_unit[None]
    assert len(set(held)) == 1
    assert held[-1] == own[-1], "the most frames are as the checkpoint has them"
    assert own[0] > own[-1] or most == 28
    assert held[0] * 32 * 32 <= pixels, "a token is 32 x 32 pixels"
    assert held[0] * 32 * 32 > 0.85 * min(pixels, height * width), "and no smaller than need be"


def test_qwen2_5_holds_the_tokens_of_a_unit_by_itself(loaded: dict[str, LoadedModel]) -> None:
    model = loaded["qwen2_5_vl"]
    current = dict(model.processor.video_processor.size)
    assert model.family.pixels_left(28, current) is None
    grids = {}
    for n, frame_pixels in ((2, None), (9, None), (2, 200_000), (9, 200_000)):
        shown = uniform(n, fps=25.0, source_frames=90_000, size=(720, 1280))
        prepared = prepare_inputs(
            model, a_question(), shown, instruction="x", max_new_tokens=4, frame_pixels=frame_pixels
        )
        ((_, *grids[n, frame_pixels]),) = visual(prepared)["video_grid_thw"]
    assert grids[2, None] == grids[9, None]
    assert grids[2, 200_000] == grids[9, 200_000]
    rows, cols = grids[2, 200_000]
    assert 0.85 * 200_000 < rows * cols * 14 * 14 <= 200_000


@pytest.mark.parametrize("family", FAMILIES)
def test_held_frames_are_not_made_larger(loaded: dict[str, LoadedModel], family: str) -> None:
    """A lower limit of pixels would enlarge short videos alone, where it is one of the whole video."""
    model = loaded[family]
    size = {"shortest_edge": 20 * 64 * 64, "longest_edge": 10**8}
    limits = model.family.frame_limit(10**6, 4, size)
    per_video = model.family.pixels_left(4, size) is not None
    assert (limits["shortest_edge"] <= 4 * 64 * 64) == per_video
    assert limits["longest_edge"] == (4 if per_video else 1) * 10**6


def test_a_prompt_leaves_the_processor_as_it_was(loaded: dict[str, LoadedModel]) -> None:
    model = loaded["qwen3_vl"]
    before = dict(model.processor.video_processor.size)
    shown = uniform(4, fps=8.0, source_frames=400, size=(128, 192))
    for frame_pixels in (64 * 64, None):
        prepared = prepare_inputs(
            model, a_question(), shown, instruction="x", max_new_tokens=4, frame_pixels=frame_pixels
        )
    assert dict(model.processor.video_processor.size) == before
    assert visual(prepared)["video_grid_thw"] == [[2, 8, 12]]
