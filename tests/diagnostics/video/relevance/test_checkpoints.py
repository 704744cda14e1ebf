"""CLIP, SigLIP and BLIP-ITM through the library's own forward, on small checkpoints of the real classes."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoProcessor, BlipForImageTextRetrieval

from diagnostics.errors import ConfigError, ScorerUnavailableError
from diagnostics.video.relevance import FeatureScorer, FrameScorer, load_scorer, score, scorer_names
from diagnostics.video.relevance.config import ScorerConfig

TEXTS = ["what colour is the lesion ?", "left", "is the lesion in the left of the red a blue right what"]


def configured(name: str, path: Path | None, **more) -> ScorerConfig:
    told = None if path is None else str(path)
    return ScorerConfig(name=name, path=told, local_files_only=True, device="cpu", batch=7, **more)


def by_the_library(name: str, path: Path, frames: np.ndarray, text: str) -> np.ndarray:
    """Scores of single frames through the checkpoint's own processor and full forward."""
    auto = BlipForImageTextRetrieval if name == "blip_itm" else AutoModel
    model, processor = auto.from_pretrained(path).eval(), AutoProcessor.from_pretrained(path)
    told = {"max_length": 9, "truncation": True, "padding": "max_length" if name == "siglip" else False}
    out = []
    for frame in frames:
        words = processor.tokenizer([text], return_tensors="pt", **told)
        words.pop("token_type_ids", None)
        pixels = processor.image_processor(frame, return_tensors="pt")
        with torch.no_grad():
            result = model(**words, pixel_values=pixels["pixel_values"])
        if name == "blip_itm":
            out.append(result.itm_score.softmax(-1)[0, 1])
        elif name == "siglip":
            out.append(result.logits_per_image[0, 0].sigmoid())
        else:
            out.append(torch.cosine_similarity(result.image_embeds, result.text_embeds)[0])
    return np.array([float(value) for value in out])


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("name", ["clip", "siglip", "blip_itm"])
def test_scores_are_the_library_s(name, text, checkpoints, film):
    scorer = load_scorer(configured(name, checkpoints[name]))
    scores, features = score(scorer, film.pixels, text)
    expected = by_the_library(name, checkpoints[name], film.pixels, text)
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    assert np.ptp(scores) > 1e-5, "pictures are told apart"
    assert features.shape == (30, {"clip": 12}.get(name, 16))
    np.testing.assert_allclose(scorer.features(film.pixels), features, atol=1e-6)
    assert scorer.uses_question


def test_all_questions_of_a_video_in_one_pass(checkpoints, film):
    scorer = load_scorer(configured("blip_itm", checkpoints["blip_itm"]))
    assert isinstance(scorer, FrameScorer)
    seen = []
    scorer.model.vision_model.register_forward_hook(lambda module, given, out: seen.append(len(given[0])))
    together, _ = scorer.score_texts(film.pixels, TEXTS)
    assert sum(seen) == 30, "each picture goes through the vision tower once"
    for row, text in zip(together, TEXTS, strict=True):
        np.testing.assert_allclose(row, score(scorer, film.pixels, text)[0], atol=1e-6)


@pytest.mark.parametrize("name", ["clip", "siglip"])
def test_a_new_question_needs_no_pictures(name, checkpoints, film):
    scorer = load_scorer(configured(name, checkpoints[name]))
    assert isinstance(scorer, FeatureScorer)
    features = scorer.features(film.pixels)
    for text in TEXTS:
        np.testing.assert_allclose(scorer.scores(features, text), score(scorer, film.pixels, text)[0])


@pytest.mark.parametrize("name", ["clip", "siglip", "blip_itm"])
def test_the_version_follows_the_weights(name, checkpoints, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(checkpoints[name], copy)
    before = load_scorer(configured(name, copy)).version
    assert before == load_scorer(configured(name, copy)).version
    weights = load_file(copy / "model.safetensors")
    save_file({k: v * 1.5 for k, v in weights.items()}, copy / "model.safetensors", metadata={"format": "pt"})
    assert load_scorer(configured(name, copy)).version != before


@pytest.mark.parametrize("name", ["clip", "siglip", "blip_itm"])
def test_unavailable_offline_says_what_else_there_is(name, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    for path in (None, tmp_path / "nowhere"):
        with pytest.raises(ScorerUnavailableError) as told:
            load_scorer(configured(name, path))
        for other in ("novelty", "file", "uniform", "sampling.scorer.path"):
            assert other in str(told.value)


def test_a_checkpoint_of_another_kind_and_one_without_weights_are_refused(checkpoints, tmp_path):
    with pytest.raises(ScorerUnavailableError, match=r"of clip, not of blip"):
        load_scorer(configured("blip_itm", checkpoints["clip"]))
    shutil.copytree(checkpoints["clip"], tmp_path / "thin")
    weights = load_file(tmp_path / "thin" / "model.safetensors")
    del weights["visual_projection.weight"]
    save_file(weights, tmp_path / "thin" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ScorerUnavailableError, match="lack 1 tensors, visual_projection"):
        load_scorer(configured("clip", tmp_path / "thin"))


def test_names():
    assert set(scorer_names()) == {"blip_itm", "clip", "file", "novelty", "siglip"}
    with pytest.raises(ConfigError, match="novelty"):
        load_scorer(ScorerConfig(name="noveltie"))
    with pytest.raises(ConfigError, match="lacks `load`"):
        load_scorer(ScorerConfig(name="json.decoder"))
    with pytest.raises(ConfigError, match="cannot be loaded"):
        load_scorer(ScorerConfig(name="no.such"))
