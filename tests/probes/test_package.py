"""The package as a whole: what it imports, what it names, and that annotations say the truth."""

import doctest
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import probes

ROOT = Path(__file__).parents[2]


def run(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_probes_load_no_model_code():
    run(
        "import sys, probes\n"
        "loaded = {name.split('.')[0] for name in sys.modules}\n"
        "assert not loaded & {'torch', 'transformers', 'diagnostics', 'hooks'}, loaded\n"
    )


@pytest.mark.parametrize("module", ["concentration", "decoding", "evidence", "redundancy"])
def test_examples_in_docstrings_are_true(module):
    result = doctest.testmod(sys.modules[f"probes.{module}"], extraglobs={"np": np})
    assert result.attempted > 0
    assert result.failed == 0


def test_every_public_name_exists_and_is_documented():
    for name in probes.__all__:
        assert name in {"MEASURES", "SUFFIXES"} or getattr(probes, name).__doc__, name
    source = (ROOT / "probes/__init__.py").read_text()
    for name in probes.__all__:
        assert re.search(rf'^    "{name}",  # \S', source, re.MULTILINE), f"{name} has no line of its own"


def test_the_table_and_the_names_are_one_list():
    lines = (ROOT / "docs/measures.md").read_text().splitlines()
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines if line.startswith("| `")]
    entries = [row for row in rows if len(row) == 7]
    names = [row[0].strip(" `") for row in entries]
    assert len(names) == len(set(names))
    assert set(names) == set(probes.MEASURES)
    for row in entries:
        assert all(cell.strip() for cell in row), f"{row[0]} leaves a column empty"
    endings = {row[0].strip(" `") for row in rows if len(row) == 2}
    assert endings == set(probes.SUFFIXES)
    assert all(probes.MEASURES.values())


def test_annotations_hold_under_beartype():
    """Shapes and types of arguments, results and their fields, checked by jaxtyping on one run of all."""
    run(
        """
from jaxtyping import install_import_hook
install_import_hook("probes", "beartype.beartype")
import numpy as np
import probes
rng = np.random.default_rng(0)
unit, row, col = np.indices((8, 3, 4)).reshape(3, -1)
mass = rng.random((2, 3, 8)).astype(np.float32) / 16
evidence = np.arange(16).reshape(8, 2) == 5
for some in (mass, mass[0, 0]):
    rest = np.asarray(1 - some.sum(-1))
    probes.concentration(some, rest_mass=rest, tokens_per_unit=np.full(8, 12)).measures()
    probes.evidence_alignment(some, evidence, rest_mass=rest, fractional=True).measures()
    probes.evidence_alignment(some, np.zeros(8, bool))
    probes.evidence_alignment(some, np.ones(8))
    probes.position_corrected(some, some[..., ::-1]).measures()
    probes.evidence_log_lift_corrected(some, some, evidence)
    probes.on_time_grid(some, *probes.unit_intervals(np.arange(16.0).reshape(8, 2), 20.0), 20.0, 5)
    probes.cumulative_on_grid(probes.concentration(some).cumulative, np.linspace(0, 1, 5), kind="step")
for weighting in ("mass", "equal"):
    summary = probes.pooled_and_per_head(
        mass, layers=[1], rest_mass=1 - mass.sum(-1), weighting=weighting, evidence=evidence
    )
    summary.measures()
probes.pooled_and_per_head(np.zeros((1, 1, 4)), rest_mass=np.ones((1, 1)))
features = rng.random((96, 5)).astype(np.float32)
attention = rng.random(96).astype(np.float32)
seconds = np.arange(8.0)
probes.patch_redundancy(features, attention, unit, row, col, unit_seconds=seconds, strata=[1.5]).measures()
probes.patch_redundancy(features, attention, unit, row, col, is_key=np.zeros(8, bool))
probes.patch_redundancy(features.astype(np.float16), attention, unit, row, col, key_fraction=1.0)
embeddings = probes.unit_embeddings(features, unit)
probes.pair_similarity(embeddings, others=embeddings[:3], centre=True)
probes.pair_similarity(embeddings, centre=embeddings[0], max_units=4)
probes.value_weighted_units(mass, mass, np.arange(8))
probes.mean_cumulative_curve([np.array([1.0]), np.array([0.7, 1.0])], ["a", "b"])
probes.clustered_mean([1.0, float("nan")], ["a", "b"])
probes.clustered_mean(np.array([1.0, 2.0]), [1, 2])
probes.uniform_reference(8)
course = probes.decode_course(
    mass.sum(-1), np.arange(50, 53), 40, evidence_mass=mass[..., 0], evidence_units=1.0, units=8
)
probes.row_drift(course.visual_mass, slice(1, 3), least=2)
probes.row_drift(course.visual_mass[0])
"""
    )
