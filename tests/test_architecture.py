"""Who may import whom: read from the source, so that a lazy import inside a function counts too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

FORBIDDEN = {
    "hooks": {"diagnostics", "probes"},
    "probes": {"diagnostics", "hooks", "torch", "transformers"},
}


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module.split(".")[0]


@pytest.mark.parametrize("package", sorted(FORBIDDEN))
def test_imports_go_one_way(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    wrong = {
        (str(path.relative_to(ROOT)), name)
        for path in files
        for name in imported(path)
        if name in FORBIDDEN[package]
    }
    assert not wrong


def test_nothing_depends_on_what_lies_outside_the_project() -> None:
    sources = [
        *ROOT.glob("*/**/*.py"),
        *ROOT.glob("conf/**/*.yaml"),
        ROOT / "pyproject.toml",
        ROOT / "Makefile",
    ]
    ours = [path for path in sources if not {".venv", ".cache"} & set(path.parts)]
    needle = "../" + "shared"
    assert not [path for path in ours if needle in path.read_text(encoding="utf-8")]


def test_no_source_deserialises_code() -> None:
    """No pickle from disk, no remote code, no unsafe torch.load."""
    for package in ("diagnostics", "hooks", "probes"):
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            assert "pickle.load" not in text, path
            assert "trust_remote_code=True" not in text, path
            assert "torch.load(" not in text or "weights_only=True" in text, path
