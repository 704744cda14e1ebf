"""Checkpoints that load as asked, and those that are refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForImageTextToText
from transformers.utils import logging as transformers_logging

from diagnostics.errors import CheckpointError, ConfigError, ModelError, RunError
from diagnostics.models.config import ModelConfig
from diagnostics.models.loading import LoadedModel, load_model, outline_model

from .conftest import FAMILIES, load


def a_copy(checkpoint: Path, folder: Path) -> Path:
    return Path(shutil.copytree(checkpoint, folder / checkpoint.name))


def edit(path: Path, **changes: Any) -> None:
    values = json.loads(path.read_text())
    path.write_text(json.dumps({**values, **changes}))


@pytest.mark.parametrize("family", FAMILIES)
def test_what_was_saved_is_what_is_loaded(
    checkpoints: dict[str, Path], loaded: dict[str, LoadedModel], family: str
) -> None:
    own = AutoModelForImageTextToText.from_pretrained(checkpoints[family], dtype=torch.float32)
    theirs = loaded[family].model.state_dict()
    assert own.state_dict().keys() == theirs.keys()
    assert all(torch.equal(value, theirs[name]) for name, value in own.state_dict().items())
    assert not loaded[family].model.training
    shape = {"qwen3_vl": (5, 6, 2), "qwen2_5_vl": (3, 8, 2)}[family]
    provenance = loaded[family].provenance
    assert tuple(provenance[name] for name in ("layers", "heads", "key_value_heads")) == shape
    assert provenance["parameters"] == sum(value.numel() for value in own.parameters())
    assert loaded[family].context == {"qwen3_vl": 262_144, "qwen2_5_vl": 128_000}[family]


@pytest.mark.parametrize(
    ("family", "told"),
    [
        ("gemma4", {"max_soft_tokens": 70, "patch_size": 16}),
        ("minicpmv4_6", {"scale_resolution": 112, "max_slice_nums": 4, "slice_mode": True}),
        ("smolvlm", {"longest_edge": 168, "max_image_size": {"longest_edge": 84}}),
    ],
)
def test_what_sizes_frames_is_in_the_manifest_where_no_size_does(
    family: str, told: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIAGNOSTICS_CACHE", str(tmp_path))
    config = ModelConfig("miniature", f"miniature/{family}", device="cpu")
    assert json.loads(json.dumps(outline_model(config).provenance["video_size"])) == told


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_that_are_not_safetensors_are_refused(
    checkpoints: dict[str, Path], tmp_path: Path, family: str
) -> None:
    folder = a_copy(checkpoints[family], tmp_path)
    weights = AutoModelForImageTextToText.from_pretrained(folder).state_dict()
    torch.save(weights, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="safetensors") as raised:
        load(folder)
    assert raised.value.path == str(folder)


def test_code_of_the_checkpoint_is_not_run(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    folder = a_copy(checkpoints["qwen3_vl"], tmp_path)
    trace = tmp_path / "it ran"
    (folder / "theirs.py").write_text(f"from pathlib import Path\nPath({str(trace)!r}).touch()\n")
    edit(
        folder / "config.json",
        model_type="their_vl",
        auto_map={"AutoConfig": "theirs.Config", "AutoModelForImageTextToText": "theirs.Model"},
    )
    with pytest.raises(CheckpointError, match="needs code of its own, which is not run"):
        load(folder)
    assert not trace.exists()


def test_an_architecture_without_a_family_is_refused_before_its_weights_are_read(
    checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    folder = a_copy(checkpoints["qwen2_5_vl"], tmp_path)
    (folder / "config.json").write_text(json.dumps({"model_type": "llava"}))
    (folder / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(CheckpointError, match="Model type 'llava' has no family"):
        load(folder)


def test_damaged_weights_are_a_clear_error(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    folder = a_copy(checkpoints["qwen3_vl"], tmp_path)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(CheckpointError, match="Cannot load"):
        load(folder)


def test_weights_that_are_missing_are_not_made_up(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    """transformers initialises what a file lacks, at random, and only warns."""
    folder = a_copy(checkpoints["qwen3_vl"], tmp_path)
    weights = load_file(folder / "model.safetensors")
    gone = next(name for name in weights if name.endswith("layers.2.self_attn.q_proj.weight"))
    save_file({name: value for name, value in weights.items() if name != gone}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"layers\.2\.self_attn\.q_proj\.weight"):
        load(folder)


def test_a_checkpoint_that_fails_ends_the_run_not_each_item(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError) as raised:
        load(tmp_path / "nothing")
    assert isinstance(raised.value, RunError)
    assert isinstance(raised.value, ModelError)


@pytest.mark.parametrize("path", ["/no/such/folder", "~/no such folder", "./none", "a/b/c"])
def test_a_folder_that_is_not_there_is_not_looked_for_on_the_hub(path: str) -> None:
    with pytest.raises(CheckpointError, match=r"There is no folder '.*(folder|none|c)'"):
        load_model(ModelConfig(name="x", path=path))


def test_a_device_that_is_not_there_is_named(checkpoints: dict[str, Path]) -> None:
    with pytest.raises(CheckpointError, match="'nonsense'"):
        load(checkpoints["qwen3_vl"], device="nonsense")


@pytest.mark.parametrize(
    ("asked", "given"), [("auto", "float32"), ("bfloat16", "bfloat16"), ("float16", "float16")]
)
def test_dtype(checkpoints: dict[str, Path], asked: str, given: str) -> None:
    found = load(checkpoints["qwen3_vl"], dtype=asked)
    assert {value.dtype for value in found.model.parameters()} == {getattr(torch, given)}
    assert found.provenance["dtype"] == given


def test_dtype_auto_is_the_checkpoints_own(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "half"
    load(checkpoints["qwen2_5_vl"], dtype="bfloat16").model.save_pretrained(folder)
    for name in checkpoints["qwen2_5_vl"].iterdir():
        if not (folder / name.name).exists():
            shutil.copy(name, folder)
    assert load(folder, dtype="auto").provenance["dtype"] == "bfloat16"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
def test_attention_kernel(checkpoints: dict[str, Path], family: str, kernel: str) -> None:
    model = load(checkpoints[family], attention=kernel).model
    assert model.model.language_model.config._attn_implementation == kernel
    assert model.model.visual.config._attn_implementation == kernel


def test_device_map_places_the_model(checkpoints: dict[str, Path]) -> None:
    found = load(checkpoints["qwen3_vl"], device_map="cpu", device="cuda:7")
    assert found.device == torch.device("cpu"), "device_map overrides device"
    spread = load(checkpoints["qwen3_vl"], device_map="auto", device="nonsense")
    devices = {str(value.device).partition(":")[0] for value in spread.model.parameters()}
    assert devices == {"cuda" if torch.cuda.is_available() else "cpu"}


@pytest.mark.parametrize("family", FAMILIES)
def test_pixel_limits_replace_only_what_is_given(checkpoints: dict[str, Path], family: str) -> None:
    own = dict(load(checkpoints[family]).processor.video_processor.size)
    lower = load(checkpoints[family], min_pixels=20_000).processor.video_processor.size
    upper = load(checkpoints[family], max_pixels=200_000).provenance["video_size"]
    assert (lower["shortest_edge"], lower["longest_edge"]) == (20_000, own["longest_edge"])
    assert (upper["shortest_edge"], upper["longest_edge"]) == (own["shortest_edge"], 200_000)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_upper_pixel_limit_below_the_lower_is_refused(checkpoints: dict[str, Path], family: str) -> None:
    with pytest.raises(ConfigError, match=r"model\.min_pixels"):
        load(checkpoints[family], min_pixels=300_000, max_pixels=200_000)


def test_what_the_checkpoint_would_sample_with_is_put_aside_and_told(
    checkpoints: dict[str, Path], loaded: dict[str, LoadedModel]
) -> None:
    own = json.loads((checkpoints["qwen2_5_vl"] / "generation_config.json").read_text())
    assert own["do_sample"] is True
    told = loaded["qwen2_5_vl"].provenance["generation"]
    assert told["do_sample"] is False
    names = ("do_sample", "temperature", "top_p", "top_k", "repetition_penalty")
    assert told["put_aside"] == {name: own[name] for name in names}
    assert loaded["qwen2_5_vl"].model.generation_config.eos_token_id == own["eos_token_id"]


def test_loading_draws_no_bars_and_gives_them_back(
    checkpoints: dict[str, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    transformers_logging.enable_progress_bar()
    load(checkpoints["qwen3_vl"])
    out, err = capfd.readouterr()
    assert "Loading weights" not in out + err
    assert transformers_logging.is_progress_bar_enabled()
    with pytest.raises(CheckpointError):
        load(Path("/nowhere"))
    assert transformers_logging.is_progress_bar_enabled()


def test_tiny_is_a_checkpoint_like_any_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DIAGNOSTICS_CACHE", str(tmp_path))
    first, second, other = (
        load_model(
            ModelConfig(name="tiny_random", path="tiny_random", dtype="float32", device="cpu", seed=seed)
        )
        for seed in (0, 0, 1)
    )
    weights = [found.model.lm_head.weight for found in (first, second, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    (again,) = {path for path in (tmp_path / "models").iterdir() if str(path) == first.provenance["path"]}
    assert (again / "model.safetensors").exists()


def test_a_checkpoint_in_the_layout_it_was_published_in(
    checkpoints: dict[str, Path], loaded: dict[str, LoadedModel], tmp_path: Path
) -> None:
    """Qwen2.5-VL of January 2025: a flat configuration, limits meant for images, the template as JSON."""
    new = checkpoints["qwen2_5_vl"]
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "model.safetensors"):
        shutil.copy(new / name, tmp_path)
    config = json.loads((new / "config.json").read_text())
    text, vision = config.pop("text_config"), config["vision_config"]
    config |= {name: value for name, value in text.items() if name not in ("model_type", "layer_types")}
    sections = config.pop("rope_parameters")["mrope_section"]
    config |= {
        "rope_scaling": {"type": "mrope", "mrope_section": sections},
        "rope_theta": 1e6,
        "torch_dtype": "float32",
        "vision_config": {**vision, "in_chans": 3, "spatial_patch_size": 14},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    limits = {"min_pixels": 3_136, "max_pixels": 12_845_056}
    kinds = {"image_processor_type": "Qwen2VLImageProcessor", "processor_class": "Qwen2_5_VLProcessor"}
    shape = {"patch_size": 14, "temporal_patch_size": 2, "merge_size": 2}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(limits | kinds | shape))
    template = (new / "chat_template.jinja").read_text()
    (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": template}))

    old = load(tmp_path)
    weights = loaded["qwen2_5_vl"].model.state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in old.model.state_dict().items())
    assert old.provenance["video_size"] == {"shortest_edge": 3_136, "longest_edge": 12_845_056}
    chats = {
        found.processor.apply_chat_template(
            [{"role": "user", "content": [{"type": "video"}]}], tokenize=False
        )
        for found in (old, loaded["qwen2_5_vl"])
    }
    assert len(chats) == 1


def test_an_output_layer_tied_to_the_embeddings_is_not_missing(
    checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    folder = a_copy(checkpoints["qwen3_vl"], tmp_path)
    text = json.loads((folder / "config.json").read_text())["text_config"]
    edit(folder / "config.json", tie_word_embeddings=True, text_config={**text, "tie_word_embeddings": True})
    weights = load_file(folder / "model.safetensors")
    del weights["lm_head.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    model = load(folder).model
    assert model.lm_head.weight is model.model.language_model.embed_tokens.weight
