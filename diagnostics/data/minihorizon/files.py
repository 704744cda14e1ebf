"""MiniHorizon on disk: H.264 files and their truth, written once, complete or not at all."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import av
from filelock import FileLock

from diagnostics.cache import cache_folder
from diagnostics.data.build.pipeline import FILES
from diagnostics.data.items import Item
from diagnostics.data.jsonl import write_records
from diagnostics.data.minihorizon.procedure import Procedure, make_procedures
from diagnostics.data.minihorizon.questions import ask
from diagnostics.data.minihorizon.render import Scene
from diagnostics.data.minihorizon.settings import GENERATOR_VERSION, Config
from diagnostics.data.minihorizon.tracks import as_tracks
from diagnostics.errors import ConfigError

__all__ = ["TRACKS", "TRUTH", "content", "ensure_files", "write_video"]

TRUTH = "truth.jsonl"
"""The items in the format of `data=jsonl`, beside the videos."""

TRACKS = "tracks.json"
"""The annotation tracks, in the format of `diagnostics.data.build`."""

_CONTENT = "content.json"
_log = logging.getLogger(__name__)


def ensure_files(config: Config) -> Path:
    """The folder with the videos of `config`, written now unless it is there and complete.

    Its name is the hash of the content. It is written beside itself and renamed when complete, under a
    lock: a second process waits for the first and then finds the work done; what a killed process left
    is removed by the next.

    Raises:
        ConfigError: the cache folder cannot be written.
    """
    try:
        home = Path(config.cache).expanduser() if config.cache else cache_folder("minihorizon")
        home.mkdir(parents=True, exist_ok=True)
        folder = home / config.content_hash
        if not _is_complete(folder):
            with FileLock(home / f"{config.content_hash}.lock"):
                if not _is_complete(folder):
                    _write(config, folder)
    except OSError as error:
        raise ConfigError(
            f"MiniHorizon's videos cannot be written: {error}.",
            remedy="Set DIAGNOSTICS_CACHE or data.cache to a folder with some space that you may write.",
        ) from error
    return folder


def content(config: Config, root: Path) -> tuple[Sequence[Procedure], list[Item]]:
    """What happens in each video, and the questions on all of them, their videos below `root`."""
    procedures = make_procedures(config)
    return procedures, ask(config, procedures, root)[0]


def _is_complete(folder: Path) -> bool:
    """Whether every file is there with the size it had when written."""
    try:
        sizes = json.loads((folder / _CONTENT).read_text(encoding="utf-8"))["sizes"]
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (FileNotFoundError, ValueError, KeyError):  # absent, or cut short by a crash of the machine
        return False


def _write(config: Config, folder: Path) -> None:
    partial = folder.with_name(f"{folder.name}.partial")
    for leftover in (partial, folder):
        if leftover.exists():
            shutil.rmtree(leftover)
    partial.mkdir()
    procedures = make_procedures(config)
    items, audit = ask(config, procedures, partial)
    for procedure in procedures:
        _log.info("writing %s (%d of %d)", folder / procedure.video, procedure.index + 1, len(procedures))
        write_video(config.of_video(procedure.index), procedure, partial / procedure.video)
    write_records(partial / TRUTH, items, partial)
    tracks = as_tracks(config, procedures)
    (partial / TRACKS).write_text(json.dumps(tracks, indent=1), encoding="utf-8")
    audit.write(partial / FILES["audit"])
    audit.funnel().to_csv(partial / FILES["funnel"], index=False, lineterminator="\n")
    written = {
        "generator": GENERATOR_VERSION,
        "config": {**asdict(config), "cache": None},
        "sizes": {path.name: path.stat().st_size for path in sorted(partial.iterdir())},
    }
    (partial / _CONTENT).write_text(json.dumps(written, indent=1), encoding="utf-8")
    partial.rename(folder)


def write_video(config: Config, procedure: Procedure, path: Path) -> None:
    """Render one procedure into an mp4 file: H.264, 4:2:0, a keyframe every three seconds.

    One encoder thread and no macroblock tree, so that the same pictures give the same bytes: with the
    tree, libx264 gave four different files in four encodings; without it, one in 25.
    """
    scene = Scene(config, procedure)
    with av.open(str(path), "w", options={"movflags": "+faststart"}) as container:
        stream = container.add_stream("libx264", rate=config.rate)
        stream.width, stream.height, stream.pix_fmt = config.width, config.height, "yuv420p"
        stream.codec_context.gop_size = max(1, round(3 * config.rate))
        stream.codec_context.thread_count = 1
        stream.options = {"crf": "18", "preset": "veryfast", "x264-params": "mbtree=0"}
        for block in scene.blocks():
            for picture in block:
                container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode(None))
