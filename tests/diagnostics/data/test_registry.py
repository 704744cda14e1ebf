import subprocess
import sys
import textwrap

import pytest

from diagnostics.data import load_items, loader, loader_names
from diagnostics.errors import ConfigError


def test_the_bundled_loaders_are_found():
    assert loader_names() == [
        "jsonl",
        "longshotbench",
        "longvideobench",
        "medhorizon",
        "minihorizon",
        "mlvu",
        "mvbench",
        "qvhighlights",
        "tvbench",
        "videomme",
    ]


def test_unknown_names_and_keys_name_the_near_match(tmp_path):
    with pytest.raises(ConfigError, match=r"medhorizn.*'medhorizon'"):
        loader("medhorizn")
    with pytest.raises(ConfigError, match="'path'"):
        load_items("jsonl", {"pth": "x.jsonl"})
    with pytest.raises(ConfigError, match="'limit'"):
        load_items("jsonl", {"path": "x.jsonl", "limt": 3})
    with pytest.raises(ConfigError, match="must be given"):
        load_items("jsonl", {})
    with pytest.raises(ConfigError, match="no `Config`"):
        loader("items")


def test_a_third_party_loader_is_one_module(tmp_path, monkeypatch):
    (tmp_path / "their_set.py").write_text(
        textwrap.dedent("""
        from pathlib import Path
        from pydantic.dataclasses import dataclass
        from diagnostics.data import Loaded
        from diagnostics.data.items import Item
        from diagnostics.strict import STRICT

        @dataclass(frozen=True, config=STRICT)
        class Config:
            n: int

        def load(config):
            return Loaded([Item(str(i), Path("v"), "v", "?") for i in range(config.n)], [])
        """)
    )
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("")
    (tmp_path / "pack" / "broken.py").write_text("import a_library_that_is_missing")
    (tmp_path / "pack" / "fine.py").write_text("from their_set import Config, load")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert len(load_items("pack.fine", {"n": 3}).items) == 3
    with pytest.raises(ModuleNotFoundError, match="a_library"):
        loader("pack.broken")
    with pytest.raises(ConfigError, match=r"pack\.gone"):
        loader("pack.gone")


def test_nothing_here_imports_torch():
    code = (
        "import sys, diagnostics.data as d, diagnostics.scoring; d.loader_names();"
        " sys.exit(any(m in sys.modules for m in ('torch', 'transformers')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
