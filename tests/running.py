"""Starting the program as a person does, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from diagnostics.store.record_log import read_records
from diagnostics.store.records import Record
from diagnostics.store.run_folder import tensor_path
from diagnostics.store.tensor_parts import PairTensors
from diagnostics.store.tensors import read_tensors

__all__ = ["Run", "attention_drift"]


@dataclass(frozen=True)
class Run:
    """A finished run: its folder and what it printed."""

    folder: Path
    printed: str

    @property
    def records(self) -> list[Record]:
        return read_records(self.folder)

    def tensors(self, record: Record) -> PairTensors:
        path = tensor_path(self.folder, record)
        assert path is not None, record.error
        return read_tensors(path)

    def row_sums(self, record: Record) -> np.ndarray:
        """[layer, head, role]: what should be one; NaN-free for roles that have rows."""
        attention = self.tensors(record).attention
        return attention.unit_mass.sum(axis=-1, dtype=np.float64) + attention.rest_mass

    def thumbnails(self, record: Record) -> dict[int, Path]:
        """The record's small pictures by slot."""
        path = tensor_path(self.folder, record)
        assert path is not None, record.error
        folder = self.folder / "thumbnails" / path.stem
        return {int(picture.stem): picture for picture in sorted(folder.iterdir())}


def attention_drift(folder: Path, *arguments: str, cache: Path, timeout: float = 600) -> Run:
    """`python -m diagnostics +exp=attention_drift ... out=FOLDER`; fails the test where it fails."""
    command = [sys.executable, "-m", "diagnostics", "+exp=attention_drift", f"out={folder}", *arguments]
    environment = {
        **os.environ,
        "DIAGNOSTICS_CACHE": str(cache),
        "OMP_WAIT_POLICY": "PASSIVE",
        "COLUMNS": "200",
        "HF_HUB_OFFLINE": "1",
    }
    folder.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        command, cwd=folder.parent, env=environment, capture_output=True, text=True, timeout=timeout
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return Run(folder, done.stdout + done.stderr)
