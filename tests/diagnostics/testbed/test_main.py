import json

import numpy as np
import pytest

from diagnostics.data.minihorizon.files import content
from diagnostics.data.minihorizon.settings import Config
from diagnostics.models.backends.hf import answer
from diagnostics.models.config import ModelConfig
from diagnostics.models.loading import load_model
from diagnostics.models.prompting import prepare_inputs
from diagnostics.testbed.__main__ import main
from diagnostics.testbed.footage import shoot
from diagnostics.testbed.lessons import INSTRUCTION
from diagnostics.testbed.measure import FLOORS, Score, Shown, below_floor, held_out
from diagnostics.video.reading import FrameReader
from diagnostics.video.sampling import select_frames, uniform_plus_evidence
from diagnostics.video.sampling.uniform_plus_evidence import Config as Sampling
from diagnostics.video.selection import Frames


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DIAGNOSTICS_CACHE", str(tmp_path_factory.mktemp("cache")))
        main(
            [
                "--out",
                str(folder),
                "--share",
                "0.002",
                "--videos",
                "18",
                "--test-videos",
                "6",
            ]
        )
        yield folder


def test_it_writes_an_ordinary_small_checkpoint(trained):
    assert (trained / "model.safetensors").stat().st_size <= 8e6
    card = (trained / "README.md").read_text()
    assert "Tiny Qwen3-VL on MiniHorizon" in card
    assert {score["task"] for score in json.loads((trained / "scores.json").read_text())} >= {
        "Hist",
        "RSR",
        "PR",
    }
    again = (trained / "model.safetensors").read_bytes()
    main(["--out", str(trained), "--share", "0.002", "--videos", "18", "--test-videos", "6"])
    assert (trained / "model.safetensors").read_bytes() == again, "a finished run has nothing left to do"


def test_the_measured_accuracy_is_that_of_the_real_path(trained):
    """The same items through samplers, reader, processor and generation of the toolkit."""
    config = Config(split="test", n_videos=6)
    footage = shoot(config)
    loaded = load_model(ModelConfig(name="trained", path=str(trained), dtype="float32", device="cpu"))
    sampling = Sampling(budget=8, evidence_frames=4)
    items = [item for item in content(config, footage.folder)[1] if item.task in ("RSR", "PR")]
    right = dict.fromkeys(("RSR", "PR"), 0)
    with FrameReader() as reader:
        for item in items:
            selection = select_frames(uniform_plus_evidence, sampling, reader.index(item.video), item)
            frames = Frames(reader.read(item.video, selection.frame_indices), selection)
            prompt = prepare_inputs(loaded, item, frames, instruction=INSTRUCTION, max_new_tokens=4)
            logits = answer(loaded, prompt.inputs, item, 4).option_logits
            right[item.task] += item.letters[logits.index(max(logits))] == item.answer
    measured = {
        s.task: s.right for s in held_out(loaded.model, footage, Shown("enriched", 8), forms=["choice"])
    }
    assert {task: measured[task] for task in right} == right


def test_uniform_frames_count_where_they_hit_every_window(trained):
    """Counted once more from the decoded selection's own slots."""
    config = Config(split="test", n_videos=6)
    footage = shoot(config)
    loaded = load_model(ModelConfig(name="trained", path=str(trained), dtype="float32", device="cpu"))
    scores = {s.task: s.n for s in held_out(loaded.model, footage, Shown("uniform", 8), forms=["open"])}
    expected = dict.fromkeys(scores, 0)
    for item in content(config, footage.folder)[1]:
        index = next(
            i
            for p, i in zip(footage.procedures, footage.indices, strict=True)
            if f"{p.name}.mp4" == item.video_id
        )
        shown = np.rint(np.linspace(0, index.n_frames - 1, 8))
        hit = [any(w.start_frame <= frame < w.end_frame for frame in shown) for w in item.evidence.windows]
        expected[item.task] += all(hit)
    assert scores == expected
    assert 0 < sum(scores.values()) < len(content(config, footage.folder)[1])


def test_floors_are_of_answers_with_options():
    low = Score("Size", "choice", "enriched", 16, 84, 100)
    others = [Score("Size", "choice", "enriched", 16, 85, 100), Score("Size", "open", "enriched", 16, 1, 100)]
    unlabelled = Score("IR", "choice", "enriched", 16, 0, 100)
    nothing = Score("Hist", "choice", "enriched", 16, 0, 0)
    others.append(Score("Size", "choice", "uniform", 24, 0, 100))
    assert below_floor([low, *others, unlabelled, nothing]) == [low, nothing]
    assert set(FLOORS) == {"Hist", "Site", "Size", "PR", "RSR"}
