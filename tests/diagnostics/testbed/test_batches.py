import numpy as np
import pytest
import torch
from einops import rearrange

from diagnostics.testbed.batches import make_batch
from diagnostics.testbed.checkpoint import LABELS, new_model, processor
from diagnostics.testbed.lessons import look_up, video_lesson
from diagnostics.testbed.speed import units_at_once
from diagnostics.testbed.training import first_token_logits


def real_inputs(lesson, footage):
    """The lesson through chat template and processor, as `prepare_inputs` does it."""
    patches = footage.patches[lesson.frames]
    frames = rearrange(
        patches,
        "frame (down across mdown macross) channel high wide"
        " -> frame channel (down mdown high) (across macross wide)",
        down=3,
        across=3,
        mdown=2,
        macross=2,
    )
    content = [{"type": "video"}, {"type": "text", "text": lesson.text}]
    chat = processor().apply_chat_template(
        [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
    )
    metadata = {
        "fps": footage.fps,
        "frames_indices": lesson.seconds * footage.fps,
        "total_num_frames": 96,
        "duration": 24.0,
    }
    return processor()(
        text=[chat],
        videos=[torch.from_numpy(frames.copy())],
        return_tensors="pt",
        cap_pixels_per_frame=False,
        video_metadata=[metadata],
        do_sample_frames=False,
    )


@pytest.mark.parametrize("form", ["choice", "open"])
@pytest.mark.parametrize("task", ["Hist", "PR", "CPR"])
def test_a_batch_is_what_the_processor_makes(footage, task, form):
    random = np.random.default_rng(1)
    lessons = [video_lesson(footage, task, form, 5, random) for _ in range(3)]
    batch = make_batch(lessons, footage)
    model = new_model(0).eval()
    logits = first_token_logits(model, batch)
    n_patches = len(batch.pixels) // 3
    for row, lesson in enumerate(lessons):
        inputs = real_inputs(lesson, footage)
        length = inputs["input_ids"].shape[1]
        assert torch.equal(batch.ids[row, :length], inputs["input_ids"][0])
        said = processor().tokenizer.decode(batch.ids[row, length:])
        assert said.replace("<|endoftext|>", "") == f"{lesson.answer}<|im_end|>"
        assert batch.asked_at[row] == length - 1
        pixels = batch.pixels[row * n_patches : (row + 1) * n_patches]
        assert torch.allclose(pixels, inputs["pixel_values_videos"], atol=1e-6)
        assert torch.equal(batch.grids[row], inputs["video_grid_thw"][0])
        positions, _ = model.model.get_rope_index(
            input_ids=inputs["input_ids"],
            mm_token_type_ids=inputs["mm_token_type_ids"],
            video_grid_thw=inputs["video_grid_thw"],
        )
        assert torch.equal(batch.positions[:, row, :length], positions[:, 0])
        with torch.inference_mode():
            expected = model(**inputs).logits[0, -1]
        assert torch.allclose(logits[row], expected, atol=1e-4), (
            "padding or fast attention changed the logits"
        )


def test_units_at_once_changes_no_number_and_leaves_no_trace(footage):
    batch = make_batch([video_lesson(footage, "Hist", "choice", 4, np.random.default_rng(2))], footage)
    visual = new_model(3).eval()
    tower = visual.model.visual
    with torch.inference_mode():
        plain = tower(batch.pixels, batch.grids).pooler_output
        with units_at_once(visual):
            fast = tower(batch.pixels, batch.grids).pooler_output
        again = tower(batch.pixels, batch.grids).pooler_output
    assert torch.allclose(plain, fast, atol=1e-6)
    assert torch.equal(plain, again)


def test_units_of_different_sizes_are_refused(footage):
    batch = make_batch([video_lesson(footage, "Hist", "choice", 2, np.random.default_rng(2))], footage)
    model = new_model(3).eval()
    with units_at_once(model), pytest.raises(ValueError, match="different sizes"):
        model.model.visual(batch.pixels[:60], torch.tensor([[1, 6, 6], [1, 4, 6]]))


def test_look_ups_have_no_video(footage):
    lessons = [look_up(footage, "Hist", np.random.default_rng(seed)) for seed in range(6)]
    batch = make_batch(lessons, footage)
    assert batch.pixels is None
    assert not (batch.ids == processor().tokenizer.convert_tokens_to_ids("<|video_pad|>")).any()
    assert torch.equal(batch.positions[0], torch.arange(batch.ids.shape[1]).expand(6, -1))


def test_answers_are_single_tokens_and_text_round_trips():
    tokenizer = processor().tokenizer
    for task, labels in LABELS.items():
        for label in labels:
            words = len(label.split())
            assert len(tokenizer.encode(label)) == len(tokenizer.encode(f" {label}")) == words, (task, label)
    for letter in "ABCD":
        assert len(tokenizer.encode(letter)) == 1
    text = "Which phase is under way between 0:00:12 and 0:01:05? Ünï ✓"
    assert tokenizer.decode(tokenizer.encode(text)) == text
