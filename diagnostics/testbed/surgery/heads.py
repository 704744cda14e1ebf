"""Which heads of a model attend to the evidence: measured on lesions whose frames are known."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Bool, Float

import hooks
import probes
from diagnostics.data.minihorizon import load
from diagnostics.data.minihorizon.settings import Config as Videos
from diagnostics.models.config import ModelConfig
from diagnostics.models.loading import load_model
from diagnostics.models.made import made_once
from diagnostics.models.prompting import prepare_inputs
from diagnostics.testbed.lessons import INSTRUCTION
from diagnostics.testbed.surgery.source import code_digest, digest_of
from diagnostics.video.reading import FrameReader
from diagnostics.video.sampling import select_frames, uniform_plus_evidence
from diagnostics.video.selection import Frames

__all__ = ["ROLES", "RULE", "TASKS", "EvidenceHeads", "evidence_heads"]

_VIDEOS = Videos(split="train", n_videos=24)
_SAMPLING = uniform_plus_evidence.Config(budget=32, evidence_frames=4)
TASKS = ("Hist", "Size", "Site")
ROLES = ("question", "last")
_CERTAIN = 2.0
_LEAST = 0.5

RULE = (
    "of one of the tasks, in the rows of the question or in the last row, the mean evidence log-lift is at"
    " least 0.5 nats and at least twice its standard error"
)
"""Which heads attend to the evidence."""


@dataclass(frozen=True, eq=False)
class EvidenceHeads:
    """Log-lift of the evidence of each head, in nats, by task and role: heads have their own tasks.

    Attributes:
        log_lift: mean over items.
        error: its standard error.
        n_items: of each task.
    """

    log_lift: Float[np.ndarray, "task role layer head"]
    error: Float[np.ndarray, "task role layer head"]
    n_items: tuple[int, ...]

    @property
    def attending(self) -> Bool[np.ndarray, "layer head"]:
        """Heads that clearly attend to the evidence: `RULE`."""
        clear = (self.log_lift >= _LEAST) & (self.log_lift >= _CERTAIN * self.error)
        return np.asarray(clear.any(axis=(0, 1)))

    def in_colour_questions(self) -> Float[np.ndarray, "layer head"]:
        """The mean log-lift of both roles where the lesion's colour is asked for."""
        return np.asarray(self.log_lift[TASKS.index("Hist")].mean(axis=0))


def evidence_heads(source: Path) -> EvidenceHeads:
    """Measure the heads of the checkpoint `source`, once: the result is kept in the cache.

    24 videos of the training split, their questions on the one lesion, 32 frames (16 units), four of them
    of the evidence; `probes.evidence_alignment` of each head, task by task, in question rows and last row.
    """
    recipe = {
        "source": digest_of(source),
        "videos": _VIDEOS.content_hash,
        "code": code_digest(),
    }
    folder = made_once("tiny-evidence-heads", recipe, lambda into: _measure(source, into / "heads.json"))
    kept = json.loads((folder / "heads.json").read_text(encoding="utf-8"))
    return EvidenceHeads(np.array(kept["log_lift"]), np.array(kept["error"]), tuple(kept["n_items"]))


def _measure(source: Path, file: Path) -> None:
    loaded = load_model(ModelConfig(name=source.name, path=str(source), dtype="float32", device="cpu"))
    items = [item for item in load(_VIDEOS).items if item.task in TASKS]
    lifts: dict[str, list[np.ndarray]] = {task: [] for task in TASKS}
    with FrameReader() as reader:
        for item in items:
            selection = select_frames(uniform_plus_evidence, _SAMPLING, reader.index(item.video), item)
            frames = Frames(reader.read(item.video, selection.frame_indices), selection)
            prompt = prepare_inputs(loaded, item, frames, instruction=INSTRUCTION, max_new_tokens=1)
            tokens = hooks.token_map(
                loaded.model,
                loaded.processor,
                prompt.inputs,
                question=prompt.question,
                options=prompt.options,
            )
            with hooks.attention_rows(loaded.model, tokens, rows=ROLES) as captured, torch.inference_mode():
                loaded.model(**prompt.inputs)
            held = selection.holds(item.evidence).reshape(-1, 2)
            lift = probes.evidence_alignment(captured.unit_mass(), held).log_lift
            lifts[item.task or ""].append(rearrange(lift, "layer head role -> role layer head"))
    kept = {
        "log_lift": [np.mean(each, axis=0).tolist() for each in lifts.values()],
        "error": [(np.std(each, axis=0, ddof=1) / np.sqrt(len(each))).tolist() for each in lifts.values()],
        "n_items": [len(each) for each in lifts.values()],
    }
    file.write_text(json.dumps(kept, indent=1), encoding="utf-8")
