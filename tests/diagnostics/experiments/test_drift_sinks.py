"""Attention drift without its sinks: the file holds the twin, and runs without it keep their hash."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import probes
from diagnostics.experiments.attention_drift import Config
from diagnostics.store.record_log import read_records
from diagnostics.store.run_folder import tensor_path
from diagnostics.store.tensors import read_tensors

from .conftest import SMALL, Diagnose

ROAD = (*SMALL, "data.n_videos=1", "exp.control=none", "exp.item_figures=0", "+exp.sinks=true")


@pytest.fixture(scope="module")
def run(diagnose: Diagnose, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sinks") / "run"
    done = diagnose(*ROAD, f"out={folder}")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_twin_can_be_made_from_the_file(run):
    sinks = json.loads((run / "manifest.json").read_text())["checks"]["sinks"]
    assert sinks["first_layer"] == 2
    for record in read_records(run):
        path = tensor_path(run, record)
        assert path is not None
        kept = read_tensors(path)
        attention = kept.attention
        assert attention is not None
        mask = probes.sink_mask(attention.sink_score, sinks["threshold"], first_layer=2)
        assert record.measures["sink_tokens"] == pytest.approx(mask.mean(), abs=1e-6)
        # The mean over heads by two roads: from tokens and scores, and from the heads' own sums.
        from_tokens = probes.units_without_sinks(attention.token_mass, mask, kept.tokens.unit_index)
        per_head = attention.unit_mass - attention.sink_unit_mass
        assert np.nanmax(np.abs(from_tokens - per_head.mean(axis=1))) < 1e-5
        place = kept.role.index("question")
        units, rest = probes.without_sinks(
            attention.unit_mass[:, :, place],
            attention.rest_mass[:, :, place],
            attention.sink_unit_mass[:, :, place],
        )
        evidence = kept.units.evidence
        summary = probes.pooled_and_per_head(units, rest_mass=rest, evidence=evidence)
        for name in ("evidence_log_lift", "unit_fraction_90", "visual_mass_pooled"):
            told = record.measures[f"{name}_without_sinks"]
            assert told == pytest.approx(summary.measures()[name], rel=1e-4), name


def test_runs_without_it_keep_their_hash():
    """The key is in no YAML file: a configuration that does not name it is what it was."""
    text = (Path(__file__).parents[3] / "conf" / "exp" / "attention_drift.yaml").read_text()
    assert "\n  sinks:" not in text
    assert Config().sinks is False
