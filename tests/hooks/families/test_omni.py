"""Qwen2.5-Omni and Qwen3-Omni: sound beside a video and woven into it, one clock for both."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import hooks
from diagnostics.models.miniatures import miniature
from hooks.families import Kind, family_of
from hooks.kept_logits import keep_logits, knows_logits_to_keep, last_logits_only

NAMES = ("qwen2_5_omni", "qwen3_omni_moe")
QUESTION = "What colour is the lesion?"
RATE = 16_000
_PLACEHOLDERS = ("audio_token_id", "video_token_id", "image_token_id", "model_type")


@dataclass
class Omni:
    name: str
    model: Any
    processor: Any

    @property
    def family(self) -> Any:
        return family_of(self.model)

    def prompt(self, *parts: str, **arguments: Any) -> dict[str, Any]:
        """What the processor makes of these parts and the question, and what the model is told besides."""
        content = [*({"type": part} for part in parts), {"type": "text", "text": QUESTION}]
        chat = self.processor.apply_chat_template(
            [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
        )
        given = {"fps": 1.0, "do_sample_frames": False, "return_tensors": "pt"} | arguments
        given = {name: value for name, value in given.items() if value is not None}
        inputs = dict(self.processor(text=[chat], **given))
        return inputs | self.family.forward_arguments(self.model, inputs)

    def map(self, inputs: dict[str, Any], **options: Any) -> hooks.TokenMap:
        return hooks.token_map(self.model, self.processor, inputs, question=QUESTION, **options)

    def sounding(self, seconds: float = 6.0, frames: int = 6, **arguments: Any) -> dict[str, Any]:
        """One video with its sound."""
        given = self.family.sound_arguments(self.processor, sound(seconds))
        return self.prompt("video", videos=[video(frames)], **given | arguments)


def video(frames: int, size: tuple[int, int] = (64, 96), seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (frames, 3, *size), dtype=np.uint8)


def sound(seconds: float, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(int(seconds * RATE)).astype(np.float32)


def shown(seconds: list[float], fps: float = 10.0, source_seconds: float | None = None) -> Any:
    """What a selection says of itself."""

    class Frames(SimpleNamespace):
        def __len__(self) -> int:
            return len(self.shown_seconds)

    times = np.array(seconds)
    length = float(times[-1] + times[1] - times[0]) if source_seconds is None else source_seconds
    return Frames(
        shown_seconds=times,
        frame_indices=np.round(times * fps).astype(np.int64),
        source_fps=fps,
        source_frames=round(length * fps),
        source_seconds=length,
    )


@pytest.fixture(scope="module", params=NAMES)
def omni(request: pytest.FixtureRequest) -> Omni:
    return Omni(request.param, *miniature(request.param).make())


@pytest.fixture(scope="module")
def all_parts(omni: Omni) -> dict[str, Any]:
    """A video with its sound, one without, a sound by itself and a picture."""
    if not hasattr(omni.processor, "load_audio_from_video"):
        pytest.skip("this transformers weaves in every sound or none")
    return omni.prompt(
        "video",
        "audio",
        "video",
        "image",
        videos=[video(5), video(4, (96, 64), 1)],
        images=[video(1, (64, 64), 2)[0]],
        audio=[sound(4.1), sound(2.3, 1)],
        audio_from_video_indices=[0, None],
        load_audio_from_video=True,
        fps=0.5,
    )


def entering(omni: Omni, inputs: dict[str, Any]) -> torch.Tensor:
    """What enters the language model, [position, dim]."""
    kept = []
    handle = omni.model.model.language_model.register_forward_pre_hook(
        lambda _module, _args, kwargs: kept.append(kwargs["inputs_embeds"][0]), with_kwargs=True
    )
    with torch.no_grad():
        omni.model(**inputs)
    handle.remove()
    return kept[0]


def test_every_position_is_what_the_model_puts_there(omni: Omni, all_parts: dict) -> None:
    """The road is the model's own: encoders' outputs, in the order of the map, are what enters its layers."""
    tokens = omni.map(all_parts, n_frames=[5, 4])
    found = entering(omni, all_parts)
    base = omni.model.model
    with torch.no_grad():
        videos = base.get_video_features(
            all_parts["pixel_values_videos"], all_parts["video_grid_thw"]
        ).pooler_output
        images = base.get_image_features(all_parts["pixel_values"], all_parts["image_grid_thw"]).pooler_output
        heard = base.get_audio_features(all_parts["input_features"], all_parts["feature_attention_mask"])
    kinds = {Kind.VIDEO: torch.cat(videos), Kind.IMAGE: torch.cat(images)}
    for unit, source in enumerate(tokens.unit_source):
        at = tokens.visual[tokens.unit_tokens(unit)]
        kind = Kind.IMAGE if source == 2 else Kind.VIDEO
        assert set(tokens.kind[at]) == {kind}
        begin = int(tokens.unit_feature_start[unit])
        assert torch.equal(found[at], kinds[kind][begin : begin + len(at)]), f"unit {unit}"
    assert torch.equal(found[tokens.audio], heard.last_hidden_state)
    assert tokens.unit_source.tolist() == [0, 0, 0, 1, 1, 2]
    assert tokens.unit_slots.tolist() == [[0, 1], [2, 3], [4, -1], [0, 1], [2, 3], [0, -1]]
    assert tokens.unit_grid.tolist()[0] == [2, 3]
    for position in tokens.audio:
        assert tokens.unit[position] == -1


def test_the_processor_s_own_kinds_agree(omni: Omni) -> None:
    inputs = omni.sounding(return_mm_token_type_ids=True)
    if "mm_token_type_ids" not in inputs:
        pytest.skip("this transformers' processor does not say")
    kinds = inputs["mm_token_type_ids"][0].numpy()
    tokens = omni.map(inputs)
    assert np.array_equal(tokens.audio, np.flatnonzero(kinds == 3))
    assert np.array_equal(tokens.visual, np.flatnonzero(kinds == 2))
    changed = inputs["mm_token_type_ids"].clone()
    changed[0, tokens.audio[0]] = 0
    with pytest.raises(hooks.TokenMapError, match="disagrees with the placeholders about audio"):
        omni.map(inputs | {"mm_token_type_ids": changed})


def test_what_is_no_feature_is_text_or_a_delimiter(omni: Omni, all_parts: dict) -> None:
    tokens = omni.map(all_parts)
    ids = all_parts["input_ids"][0].numpy()
    named = omni.processor.tokenizer.convert_tokens_to_ids
    controls = ("audio_bos_token", "audio_eos_token", "vision_bos_token", "vision_eos_token")
    delimiters = [named(getattr(omni.processor, name)) for name in controls]
    assert np.array_equal(np.isin(ids, delimiters), tokens.kind == Kind.DELIMITER)
    assert (tokens.kind == Kind.DELIMITER).sum() == 2 * 5
    asked = omni.processor.tokenizer.decode(ids[tokens.question])
    assert asked.strip() == QUESTION


@pytest.mark.parametrize("seconds_per_frame", [0.5, 1.0, 3.0])
def test_units_and_sound_stand_in_one_clock(omni: Omni, seconds_per_frame: float) -> None:
    """Positions are the library's own; a unit's is that of the audio token at its time."""
    inputs = omni.sounding(
        seconds=8.0, **omni.family.video_arguments(shown(list(np.arange(6) * seconds_per_frame)))
    )
    tokens = omni.map(inputs, n_frames=6)
    assert tokens.unit_shown_seconds == pytest.approx(np.arange(3) * 2 * seconds_per_frame)
    time = omni.family.model_positions(omni.model, inputs)[0, 0].numpy()
    per_second = {"qwen2_5_omni": 25, "qwen3_omni_moe": 13}[omni.name]
    start = time[tokens.visual[0]]
    assert time[tokens.audio] - start == pytest.approx(np.arange(len(tokens.audio)))
    exact = tokens.unit_shown_seconds * per_second
    expected = np.floor(exact) if omni.name == "qwen2_5_omni" else exact
    first = tokens.visual[tokens.unit_first_token]
    assert time[first] - start == pytest.approx(expected)
    assert len(tokens.audio) == 8 * per_second


def test_units_of_sparse_frames_are_torn_apart_by_earlier_sound(omni: Omni) -> None:
    """Qwen2.5-Omni's processor begins one chunk a token where it is behind: known, mapped, and said."""
    seen = shown([0.0, 2.0, 4.0, 6.0, 8.0, 10.0])
    inputs = omni.sounding(seconds=9.0, **omni.family.video_arguments(seen))
    tokens = omni.map(inputs)
    spread = [np.ptp(tokens.visual[tokens.unit_tokens(unit)]) + 1 for unit in range(tokens.n_units)]
    torn = omni.name == "qwen2_5_omni"
    assert bool(max(spread) > tokens.tokens_per_unit.max()) is torn
    said = omni.family.notices(seen, omni.model, inputs)
    assert any(notice.startswith("units_torn_apart") for notice in said) is torn
    dense = shown([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    close = omni.map(omni.sounding(**omni.family.video_arguments(dense)))
    spread = [np.ptp(close.visual[close.unit_tokens(unit)]) + 1 for unit in range(3)]
    assert spread == close.tokens_per_unit.tolist()
    whole = omni.family.notices(dense, omni.model, omni.sounding())
    assert not [notice for notice in whole if notice.startswith("units_torn_apart")]


def test_woven_sound_must_be_announced_to_the_model(omni: Omni) -> None:
    inputs = omni.sounding()
    silent = {name: value for name, value in inputs.items() if name != "use_audio_in_video"}
    seen = shown([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    kinds = [notice.split(":")[0] for notice in omni.family.notices(seen, omni.model, silent)]
    assert kinds == ["sound_not_announced"]
    assert omni.family.notices(seen, omni.model, inputs) == []
    assert omni.family.notices(seen, omni.model, omni.prompt("video", videos=[video(6)])) == []


def test_sound_that_ends_before_the_video_is_said(omni: Omni) -> None:
    inputs = omni.sounding(seconds=6.0)
    seen = shown(list(np.arange(6) * 1.0), source_seconds=6.0)
    longer = replace_seconds(seen, 20.0)
    assert [one.split(":")[0] for one in omni.family.notices(seen, omni.model, inputs)] == []
    (said,) = [one for one in omni.family.notices(longer, omni.model, inputs) if one.startswith("sound_cut")]
    assert "6.0 s of sound are heard, the video lasts 20.0 s" in said


def replace_seconds(seen: Any, seconds: float) -> Any:
    return type(seen)(**{**vars(seen), "source_seconds": seconds})


def test_the_spacing_of_frames_is_told(omni: Omni) -> None:
    """Without a rate the processor takes its class's own: what is lost then, and what the family gives."""
    seen = shown([0.0, 5.0, 10.0, 15.0])
    lost = omni.prompt("video", videos=[video(4)], fps=None)
    told = omni.prompt("video", videos=[video(4)], **omni.family.video_arguments(seen))
    assert lost["video_second_per_grid"].tolist() == [{"qwen2_5_omni": 1.0, "qwen3_omni_moe": 2.0}[omni.name]]
    assert told["video_second_per_grid"].tolist() == [10.0]
    uneven = omni.family.notices(shown([0.0, 1.0, 9.0, 15.0]), omni.model, told)
    assert [one.split(":")[0] for one in uneven] == ["uneven_spacing"]


def test_attention_is_that_of_eager_with_sound_in_between(omni: Omni) -> None:
    inputs = omni.sounding(fps=0.5)
    tokens = omni.map(inputs)
    eager, _ = miniature(omni.name).make(attention="eager")
    with torch.no_grad():
        rows = eager(**inputs, output_attentions=True).attentions
        with hooks.attention_rows(omni.model, tokens, "question") as captured:
            omni.model(**inputs)
    pattern = np.stack([layer[0][:, tokens.question].mean(dim=1).float().numpy() for layer in rows])
    mass = captured.unit_mass("question")
    for unit in range(tokens.n_units):
        expected = pattern[..., tokens.visual[tokens.unit_tokens(unit)]].sum(axis=-1)
        assert np.abs(mass[..., unit] - expected).max() < 1e-5
    heard = pattern[..., tokens.audio].sum(axis=-1)
    assert np.abs(captured.audio_mass("question") - heard).max() < 1e-5
    assert (captured.audio_mass() <= captured.rest_mass() + 1e-6).all()
    assert hooks.verify_capture(omni.model, inputs, tokens, "question").identical


def test_sound_is_heard_while_generating(omni: Omni) -> None:
    inputs = omni.sounding()
    tokens = omni.map(inputs)
    with torch.no_grad(), hooks.attention_rows(omni.model, tokens, "last", generated=True) as captured:
        omni.model.generate(**inputs, max_new_tokens=3, min_new_tokens=3, do_sample=False)
    assert captured.row_counts == {"last": 1, "generated": 2}
    for role in ("last", "generated"):
        audio, rest = captured.audio_mass(role), captured.rest_mass(role)
        assert ((audio > 0) & (audio < rest)).all()
    silent = omni.prompt("video", videos=[video(4)])
    with torch.no_grad(), hooks.attention_rows(omni.model, omni.map(silent), "last") as captured:
        omni.model(**silent)
    with pytest.raises(hooks.CaptureError, match="holds no sound"):
        captured.audio_mass()


def test_knocking_out_a_video_leaves_its_sound(omni: Omni) -> None:
    inputs = omni.sounding(fps=0.5)
    tokens = omni.map(inputs)
    (edges,) = hooks.path_edges(tokens, "video_to_question")
    assert not np.isin(tokens.audio, edges.keys).any()
    assert np.isin(tokens.visual, edges.keys).all()
    with torch.no_grad():
        plain = omni.model(**inputs).logits
        with hooks.knock_out(omni.model, tokens, "video_to_question") as knocked:
            changed = omni.model(**inputs).logits
    assert (knocked.blocked_mass > 0).all()
    assert not torch.equal(plain[0, tokens.question], changed[0, tokens.question])


def test_rows_of_a_batch_have_the_sounds_that_are_theirs(omni: Omni) -> None:
    """One with sound woven in, one with a sound beside a silent video; padded on the left."""
    texts = []
    for parts in (("video", "audio"), ("audio", "video")):
        content = [*({"type": part} for part in parts), {"type": "text", "text": QUESTION}]
        message = [{"role": "user", "content": content}]
        texts.append(omni.processor.apply_chat_template(message, tokenize=False, add_generation_prompt=True))
    inputs = dict(
        omni.processor(
            text=texts,
            videos=[video(4), video(2)],
            audio=[sound(2.0), sound(3.0)],
            padding=True,
            fps=1.0,
            do_sample_frames=False,
            return_tensors="pt",
        )
    )
    for row, (units, seconds) in enumerate([(2, 2.0), (1, 3.0)]):
        tokens = omni.map(inputs, row=row)
        alone = omni.prompt(
            *(("video", "audio"), ("audio", "video"))[row],
            videos=[video(4 - 2 * row)],
            audio=[sound(seconds)],
        )
        padding = int((tokens.kind == Kind.PADDING).sum())
        assert tokens.n_units == units
        assert np.array_equal(tokens.kind[padding:], omni.map(alone).kind)
        assert np.array_equal(tokens.audio - padding, omni.map(alone).audio)


def test_a_sound_that_does_not_match_its_features_is_refused(omni: Omni) -> None:
    inputs = omni.sounding()
    mask = inputs["feature_attention_mask"].clone()
    mask[0, mask[0].nonzero()[-60:]] = 0
    with pytest.raises(hooks.TokenMapError, match="feature_attention_mask"):
        omni.map(inputs | {"feature_attention_mask": mask})
    ids = inputs["input_ids"].clone()
    ids[ids == omni.model.config.audio_end_token_id] = 200
    with pytest.raises(hooks.TokenMapError, match="No delimiter"):
        omni.map(inputs | {"input_ids": ids})
    ids = inputs["input_ids"].clone()
    ids[0, (ids[0] == omni.model.config.audio_end_token_id).nonzero()[0, 0] + 1] = 200
    with pytest.raises(hooks.TokenMapError, match="do not end together"):
        omni.map(inputs | {"input_ids": ids})


def test_a_configuration_that_leaves_an_id_out_is_refused(
    omni: Omni, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As transformers' own defaults do; not an `AttributeError`."""
    inputs = omni.sounding()
    ids = ("vision_start_token_id", "vision_end_token_id", "audio_start_token_id", "audio_end_token_id")
    kept = {name: getattr(omni.model.config, name) for name in (*ids, *_PLACEHOLDERS)}
    for missing in ids:
        known = SimpleNamespace(**{name: value for name, value in kept.items() if name != missing})
        known.vision_config = omni.model.config.vision_config
        with monkeypatch.context() as patch:
            patch.setattr(omni.model, "config", known)
            with pytest.raises(hooks.TokenMapError, match=f"has no {missing}"):
                omni.family.sources(omni.model, omni.processor, inputs, 0, None)


def test_only_the_logits_asked_for_are_computed(omni: Omni) -> None:
    model, _ = miniature(omni.name).make()
    inputs = omni.sounding()
    with torch.no_grad():
        whole = model(**inputs, logits_to_keep=1).logits
        assert whole.shape[1] == inputs["input_ids"].shape[1]
        assert not knows_logits_to_keep(model)
        keep_logits(model)
        keep_logits(model)
        last = model(**inputs, logits_to_keep=1).logits
        some = model(**inputs, logits_to_keep=torch.tensor([3, 7])).logits
        assert torch.allclose(last[:, 0], whole[:, -1], atol=1e-6)
        assert torch.allclose(some, whole[:, [3, 7]], atol=1e-6)
        assert last.shape[1] == 1
        assert torch.equal(model(**inputs).logits, whole)
        settings = {
            "max_new_tokens": 3,
            "do_sample": False,
            "output_logits": True,
            "return_dict_in_generate": True,
        }
        plain = model.generate(**inputs, **settings)
        sizes = []
        handle = model.lm_head.register_forward_hook(lambda _m, _a, out: sizes.append(out.shape[1]))
        with last_logits_only(model):
            found = model.generate(**inputs, **settings)
        model(**inputs)
        handle.remove()
    assert sizes == [1, 1, 1, whole.shape[1]]
    assert torch.equal(found.sequences, plain.sequences)
    assert torch.allclose(torch.stack(found.logits), torch.stack(plain.logits), atol=1e-6)


def test_two_units_that_share_a_position_are_said() -> None:
    """Qwen2.5-Omni rounds positions down; Qwen3-Omni does not, and has no such fault."""
    seen = shown(list(np.arange(8) * 0.01), fps=100.0)
    for name, found in (("qwen2_5_omni", ["shared_positions"]), ("qwen3_omni_moe", [])):
        model, _ = miniature(name).make()
        assert [one.split(":")[0] for one in family_of(model).notices(seen, model)] == found
