"""Qwen's Omni checkpoints as they are published: the thinker out of the whole, limits that hold, sound."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import hooks
from diagnostics.errors import ConfigError, SharingError
from diagnostics.models.backends.padded_batch import answer_padded
from diagnostics.models.backends.shared_prefix import answer_together, check_positions
from diagnostics.models.config import ModelConfig
from diagnostics.models.loading import LoadedModel, outline_model
from diagnostics.models.miniatures import miniature
from diagnostics.models.prompting import Form, Prompt, prepare_inputs, processed_once
from diagnostics.video.order import reorder
from diagnostics.video.perturb import blank
from diagnostics.video.selection import Frames
from diagnostics.video.sound import read_sound

from ...sounds import sounding_video
from .conftest import a_question, load, uniform

NAMES = {"qwen2_5_omni": "Qwen2_5Omni", "qwen3_omni_moe": "Qwen3OmniMoe"}
TOKENS_PER_SECOND = {"qwen2_5_omni": 25, "qwen3_omni_moe": 13}
SECONDS = 6


@pytest.fixture(scope="module", params=sorted(NAMES))
def published(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of the whole model's layout: a thinker beside configurations of what speaks."""
    name: str = request.param
    folder = tmp_path_factory.mktemp("published") / name
    thinker, processor = miniature(name).make()
    config = getattr(transformers, f"{NAMES[name]}Config")(
        thinker_config=thinker.config.to_dict(), enable_audio_output=False
    )
    whole = getattr(transformers, f"{NAMES[name]}ForConditionalGeneration")(config)
    whole.thinker.load_state_dict(thinker.state_dict())
    whole.generation_config.pad_token_id = processor.tokenizer.pad_token_id
    whole.generation_config.eos_token_id = processor.tokenizer.eos_token_id
    whole.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def sounding(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """Videos with sound and without."""
    root = tmp_path_factory.mktemp("videos")
    return {heard: sounding_video(root / f"{heard}.mp4", SECONDS, sound=heard) for heard in (True, False)}


def ask(
    loaded: LoadedModel,
    video: Path = Path("v.mp4"),
    *,
    frames: Frames | None = None,
    form: Form = "video",
    **changes: Any,
) -> Prompt:
    """Six frames, one a second."""
    return prepare_inputs(
        loaded,
        a_question(video=video, **changes),
        frames or uniform(SECONDS, fps=10, source_frames=10 * SECONDS),
        instruction="Answer with the letter.",
        max_new_tokens=4,
        form=form,
    )


def test_the_thinker_is_loaded_out_of_the_whole(published: Path) -> None:
    loaded = load(published)
    name = published.name
    assert type(loaded.model).__name__ == f"{NAMES[name]}ThinkerForConditionalGeneration"
    expected, _ = miniature(name).make()
    for key, value in expected.state_dict().items():
        assert torch.equal(loaded.model.state_dict()[key], value), key
    outline = outline_model(ModelConfig(name="x", path=str(published), local_files_only=True))
    assert type(outline.model) is type(loaded.model)
    assert {one.device.type for one in outline.model.parameters()} == {"meta"}


def test_the_checkpoint_s_pixel_limits_hold_and_not_the_class_s(published: Path) -> None:
    """The processor's class brings limits of its own, 128 tokens a frame at least; frames here are small."""
    side = 28 if published.name == "qwen2_5_omni" else 32
    as_they_are = ask(load(published))
    assert as_they_are.grids[0][1:] == (4, 6)
    smaller = ask(load(published, max_pixels=2 * side * side))
    _, rows, cols = smaller.grids[0]
    assert rows * cols <= 8
    assert any(notice.startswith("shrunk_by_pixel_limits") for notice in smaller.notices)


def test_sound_is_heard_with_the_video(published: Path, sounding: dict[bool, Path]) -> None:
    loaded = load(published, sound=True)
    prompt = ask(loaded, sounding[True])
    assert prompt.inputs["use_audio_in_video"] is True
    tokens = hooks.token_map(loaded.model, loaded.processor, prompt.inputs, n_frames=SECONDS)
    assert len(tokens.audio) == pytest.approx(TOKENS_PER_SECOND[published.name] * SECONDS, abs=2)
    inside = (tokens.audio > tokens.visual[0]) & (tokens.audio < tokens.visual[-1])
    assert inside.any()
    assert prompt.notices == ()
    with torch.no_grad():
        heard = loaded.model(**prompt.inputs).logits[0, -1]
        silence = dict(prompt.inputs)
        silence["input_features"] = torch.zeros_like(silence["input_features"])
        assert not torch.equal(loaded.model(**silence).logits[0, -1], heard)


def test_sound_may_be_in_a_file_of_its_own(published: Path, sounding: dict[bool, Path]) -> None:
    loaded = load(published, sound=True)
    beside = ask(loaded, sounding[False], audio=sounding[True]).inputs["feature_attention_mask"]
    within = ask(loaded, sounding[True]).inputs["feature_attention_mask"]
    assert torch.equal(beside, within)


def test_the_sound_of_a_clip_is_that_of_the_clip(published: Path, sounding: dict[bool, Path]) -> None:
    """What lies outside the clip is not heard, as it is not seen."""
    loaded = load(published, sound=True)
    rate = int(loaded.processor.feature_extractor.sampling_rate)
    whole = read_sound(sounding[True], rate)
    assert whole is not None
    within = ask(loaded, sounding[True], clip=(2.0, 4.0)).inputs
    alone = loaded.processor.feature_extractor(
        [whole[2 * rate : 4 * rate]], sampling_rate=rate, padding=True, return_attention_mask=True
    )
    heard = int(within["feature_attention_mask"].sum())
    assert heard == pytest.approx(200, abs=1)  # a hundred mel frames a second
    found, expected = (np.asarray(one["input_features"])[0, :, : heard - 3] for one in (within, alone))
    assert np.abs(found - expected).max() < 1e-4, "but for what the edge's padding reaches"
    elsewhere = np.asarray(ask(loaded, sounding[True], clip=(3.0, 5.0)).inputs["input_features"])
    assert np.abs(elsewhere[0, :, : heard - 3] - found).max() > 1e-2


def test_no_sound_is_said_or_not_asked_for(published: Path, sounding: dict[bool, Path]) -> None:
    loaded = load(published, sound=True)
    silent = ask(loaded, sounding[False])
    assert [notice.split(":")[0] for notice in silent.notices] == ["no_sound"]
    off = ask(replace(loaded, config=replace(loaded.config, sound=False)), sounding[True])
    for prompt in (silent, off):
        assert "input_features" not in prompt.inputs
        assert "use_audio_in_video" not in prompt.inputs
    assert silent.sha256 == off.sha256
    assert off.notices == ()


def test_which_sound_was_heard_with_other_pictures_is_said(
    published: Path, sounding: dict[bool, Path]
) -> None:
    """Under controls the sound stays the video's; of text alone there is none."""
    loaded = load(published, sound=True)
    shown = uniform(SECONDS, fps=10, source_frames=10 * SECONDS)
    grey, swapped = blank(shown.selection), reorder(shown.selection, "reversed")
    for selection, others in ((grey, SECONDS), (swapped, SECONDS)):
        prompt = ask(loaded, sounding[True], frames=replace(shown, selection=selection))
        (told,) = [notice for notice in prompt.notices if "sound" in notice]
        assert told.startswith(f"sound_unchanged: True.mp4 is heard as it is, {others} of {SECONDS}")
        assert "input_features" in prompt.inputs
    silent = ask(loaded, sounding[False], frames=replace(shown, selection=grey))
    assert [notice.split(":")[0] for notice in silent.notices if "sound" in notice] == ["no_sound"]
    text = ask(loaded, sounding[True], form="nothing")
    assert text.notices == ("no_sound: text alone, no video to hear",)
    assert "input_features" not in text.inputs


def test_a_family_that_does_not_hear_is_refused(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    """Before its weights are read: here there are none."""
    shutil.copytree(
        checkpoints["qwen3_vl"], tmp_path / "bare", ignore=shutil.ignore_patterns("*.safetensors")
    )
    with pytest.raises(ConfigError, match="does not hear"):
        load(tmp_path / "bare", sound=True)


def test_questions_about_one_sounding_video_share_it(published: Path, sounding: dict[bool, Path]) -> None:
    """Asked together and each by itself; positions are fractions in Qwen3-Omni."""
    loaded = processed_once(load(published, sound=True))
    prompts = [
        ask(loaded, sounding[True], question=text)
        for text in ("What is heard?", "What colour is seen there?")
    ]
    inputs = [prompt.inputs for prompt in prompts]
    check_positions(loaded, inputs)
    if not loaded.family.packs(loaded.model):
        pytest.skip("the thinker of this transformers gives no states without its head")
    together = answer_together(loaded, inputs, 2, set())
    for one, reply in zip(inputs, together, strict=True):
        with torch.no_grad():
            alone = loaded.model(**one).logits[0, -1]
            said = loaded.model.generate(**one, max_new_tokens=2, min_new_tokens=2, do_sample=False)
        assert float((reply.first_logits - alone).abs().max()) < 1e-4
        assert reply.tokens == said[0, one["input_ids"].shape[1] :].tolist()
    with pytest.raises(SharingError, match="sound"):
        answer_padded(loaded, inputs, 1, set())


def test_silent_prompts_of_several_videos_are_padded_together(published: Path) -> None:
    loaded = load(published)
    inputs = [ask(loaded, question=text).inputs for text in ("What is it?", "What colour is the lesion?")]
    if not loaded.family.packs(loaded.model):
        with pytest.raises(SharingError, match="no states without its head"):
            answer_padded(loaded, inputs, 2, set())
        return
    for one, reply in zip(inputs, answer_padded(loaded, inputs, 2, set()), strict=True):
        with torch.no_grad():
            said = loaded.model.generate(**one, max_new_tokens=2, min_new_tokens=2, do_sample=False)
        assert reply.tokens == said[0, one["input_ids"].shape[1] :].tolist()
    assert np.isfinite(float(reply.first_logits.max()))
