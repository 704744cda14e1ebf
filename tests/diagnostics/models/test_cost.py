"""Operations against those torch counts, the cache against a real one, prompts against those with pixels."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import DynamicCache

from diagnostics.data.items import Item
from diagnostics.errors import CheckpointError, ConfigError
from diagnostics.models.config import ModelConfig
from diagnostics.models.cost import Work, shape_of
from diagnostics.models.gpus import gpu_named
from diagnostics.models.loading import LoadedModel, load_model, outline_model
from diagnostics.models.outline import unseen, without_pixels
from diagnostics.models.prompting import prepare_inputs
from diagnostics.testbed import WEIGHTS
from diagnostics.video.selection import Frames, Selection, Slot

from ...checkpoints import qwen2_5_checkpoint, qwen3_checkpoint

KINDS = ("tiny", "qwen3_vl", "qwen2_5_vl")


def config_of(kind: str, folder: Path, attention: str = "eager") -> ModelConfig:
    written = {"qwen3_vl": qwen3_checkpoint, "qwen2_5_vl": qwen2_5_checkpoint}
    path = str(written[kind](folder)) if kind in written else kind
    return ModelConfig(kind, path, dtype="float32", device="cpu", attention=attention)


@pytest.fixture(scope="module", params=KINDS)
def both(request, tmp_path_factory) -> tuple[LoadedModel, LoadedModel]:
    """A model with its weights (eager, whose matrix products torch counts), and its outline."""
    config = config_of(request.param, tmp_path_factory.mktemp(request.param))
    return load_model(config), outline_model(config)


def item(question: str = "What is seen first?", options: tuple[str, ...] = ("tissue", "a polyp")) -> Item:
    return Item(id="i", video=Path("v.mp4"), video_id="v", question=question, options=options, answer="A")


def selection(n: int, spacing: int = 25) -> Selection:
    slots = tuple(Slot("v", place * spacing, float(place), float(place)) for place in range(n))
    return Selection(slots, "test", 25.0, n * spacing, float(n), n)


def prepared(loaded: LoadedModel, frames: Frames):
    return prepare_inputs(loaded, item(), frames, instruction="Answer.", max_new_tokens=4)


@pytest.mark.parametrize(("n", "height", "width"), [(4, 96, 96), (1, 64, 96), (7, 200, 360), (24, 61, 333)])
def test_prompts_without_pixels_are_the_real_ones(both, n, height, width):
    real, outline = both
    pixels = np.random.default_rng(0).integers(0, 256, (n, height, width, 3), np.uint8)
    seen = prepared(real, Frames(pixels, selection(n)))
    told = prepared(without_pixels(outline), unseen(selection(n), height, width))
    assert told.sha256 == seen.sha256
    assert told.n_tokens == seen.n_tokens
    assert told.notices == seen.notices
    assert torch.equal(told.inputs["video_grid_thw"], seen.inputs["video_grid_thw"])
    assert told.inputs["pixel_values_videos"].shape == seen.inputs["pixel_values_videos"].shape
    assert told.inputs["pixel_values_videos"].is_meta


def test_the_outline_has_no_weights_and_the_same_shape(both):
    real, outline = both
    assert all(weight.is_meta for weight in outline.model.parameters())
    assert shape_of(outline) == shape_of(real)
    assert shape_of(outline).parameters == sum(weight.numel() for weight in real.model.parameters())
    assert outline.context == real.context


@pytest.mark.parametrize(("n", "height", "width"), [(4, 96, 96), (32, 200, 260)])
def test_flops_are_those_that_torch_counts(both, n, height, width):
    real, outline = both
    pixels = np.zeros((n, height, width, 3), np.uint8)
    inputs = prepared(real, Frames(pixels, selection(n))).inputs
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        real.model(**inputs, logits_to_keep=1)
    grid = tuple(inputs["video_grid_thw"][0].tolist())
    planned = shape_of(outline).flops(Work([grid], inputs["input_ids"].shape[1]))
    counted = counter.get_total_flops()
    assert planned == pytest.approx(counted, rel=0.02), "operations differ by more than 2%"


def test_flops_of_questions_that_share_a_prefix(both):
    from diagnostics.models.backends.shared_prefix import answer_together, common_prefix

    real, outline = both
    frames = Frames(np.zeros((8, 96, 96, 3), np.uint8), selection(8))
    prompts = [
        prepare_inputs(real, item(question), frames, instruction="Answer.", max_new_tokens=1).inputs
        for question in ("What is seen first?", "Where?", "How many polyps are there in all of it?")
    ]
    with FlopCounterMode(display=False) as counter:
        answer_together(real, prompts, 1, set())
    prefix = common_prefix(real, prompts)
    suffixes = [one["input_ids"].shape[1] - prefix for one in prompts]
    grid = tuple(prompts[0]["video_grid_thw"][0].tolist())
    planned = shape_of(outline).flops(Work([grid], prefix, suffixes, len(prompts)))
    assert planned == pytest.approx(counter.get_total_flops(), rel=0.02), "operations differ by more than 2%"


@pytest.mark.parametrize("n", [4, 24])
def test_the_cache_has_the_bytes_that_are_planned(both, n):
    real, outline = both
    inputs = prepared(real, Frames(np.zeros((n, 96, 96, 3), np.uint8), selection(n))).inputs
    with torch.inference_mode():
        cache: DynamicCache = real.model(**inputs, use_cache=True).past_key_values
    held = sum(tensor.nbytes for layer in cache.layers for tensor in (layer.keys, layer.values))
    n_tokens = inputs["input_ids"].shape[1]
    memory = shape_of(outline).memory(Work([(n // 2, 6, 6)], n_tokens), new_tokens=0)
    assert memory.cache == held
    assert memory.weights == sum(weight.nbytes for weight in real.model.parameters())


def test_the_estimated_activations_hold_the_measured_inputs(both):
    real, outline = both
    inputs = prepared(real, Frames(np.zeros((24, 96, 96, 3), np.uint8), selection(24))).inputs
    grid = tuple(inputs["video_grid_thw"][0].tolist())
    memory = shape_of(outline).memory(Work([grid], inputs["input_ids"].shape[1]), new_tokens=4)
    assert memory.activations > inputs["pixel_values_videos"].nbytes


def test_an_outline_needs_no_weights_on_the_disk(tmp_path):
    for file in Path(WEIGHTS).iterdir():
        if file.is_file() and file.suffix != ".safetensors":
            shutil.copy(file, tmp_path)
    config = ModelConfig("bare", str(tmp_path), device="cpu")
    assert shape_of(outline_model(config)) == shape_of(outline_model(ModelConfig("tiny", "tiny")))
    with pytest.raises(CheckpointError):
        load_model(config)


def test_dtype_of_an_outline():
    shape = shape_of(outline_model(ModelConfig("tiny", "tiny", dtype="bfloat16")))
    assert shape.item_bytes == 2
    assert shape.weight_bytes == 2 * shape.parameters


def test_experts_count_as_far_as_they_are_chosen():
    from transformers import AutoModelForImageTextToText, Qwen3VLMoeConfig

    from hooks.families import family_named

    family = family_named("qwen3_vl_moe")

    def shape(chosen: int):
        text = {
            "vocab_size": 320,
            "hidden_size": 32,
            "intermediate_size": 64,
            "moe_intermediate_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "num_experts": 8,
            "num_experts_per_tok": chosen,
            "decoder_sparse_step": 1,
        }
        vision = {
            "depth": 1,
            "hidden_size": 16,
            "num_heads": 2,
            "intermediate_size": 32,
            "out_hidden_size": 32,
        }
        config = Qwen3VLMoeConfig(text_config=text, vision_config={**vision, "deepstack_visual_indexes": [0]})
        with torch.device("meta"):
            model = AutoModelForImageTextToText.from_config(config)
        outline = outline_model(ModelConfig("tiny", "tiny"))
        return shape_of(type(outline)(**{**outline.__dict__, "model": model, "family": family}))

    one, two = shape(1), shape(2)
    assert one.parameters == two.parameters
    assert two.text_weights - one.text_weights == 2 * 3 * 32 * 16  # layers x (gate, up, down) of one expert


def test_gpus():
    assert gpu_named("h100").flops == 989.5e12
    with pytest.raises(ConfigError, match="h10"):
        gpu_named("h10")


@pytest.mark.parametrize("kind", ["internvl", "llava_onevision", "llava_next_video", "perception_lm"])
def test_a_tower_of_another_build_is_refused(kind, tmp_path, monkeypatch):
    monkeypatch.setenv("DIAGNOSTICS_CACHE", str(tmp_path))
    outline = outline_model(ModelConfig(kind, f"miniature/{kind}", dtype="float32", device="cpu"))
    with pytest.raises(ConfigError, match=f"vision tower of {kind}"):
        shape_of(outline)
