"""Write `report.html`, and `report/` beside it where one file would be too large."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import jinja2
import matplotlib as mpl
import numpy as np
from markupsafe import Markup

from diagnostics.data.items import Item
from diagnostics.report.page.answers import defined_in, source_of
from diagnostics.report.page.beside import beside_of
from diagnostics.report.page.detail import detail_of
from diagnostics.report.page.listing import listing_of
from diagnostics.report.page.overview import overview_of
from diagnostics.store import (
    Manifest,
    Record,
    Summary,
    load_summary,
    pair_stem,
    read_manifests,
    read_records,
)
from diagnostics.store.asked import read_items
from diagnostics.store.atomic import publish, write_text

__all__ = ["LARGEST_FILE", "PAGE_FILE", "write_page"]

PAGE_FILE = "report.html"

LARGEST_FILE = 40 * 2**20
"""Bytes that one self-contained page may have; with more, the items' details go into `report/`."""

_AROUND = 64
"""Bytes of the element that holds an item's detail in the page, at most."""

_LONE = "backslashreplace"
"""What becomes of half a surrogate pair, which JSON of a data set or a server may hold and UTF-8 may not."""

_FOLDER = "report"
_HERE = Path(__file__).parent
_SCRIPTS = ("drawing.js", "seen.js", "page.js")
_COLOURS = {"heat": "magma_r", "overlay": "inferno", "signed": "PuOr_r"}


def write_page(run_dir: Path, *, largest: int = LARGEST_FILE, beside: Sequence[str] = ()) -> Path:
    """Write the page of a run from its files alone, and give its path; an older page is replaced.

    Items' details are in the page while it stays below `largest` bytes, or else each in a file of its own in
    `report/`, which the page reads when the item is opened.

    Args:
        largest: bytes of the page.
        beside: folders of other runs: what they measured of the same frames is shown with each item.

    Raises:
        ForeignFolderError, IncompleteRunError, DamagedRunError: there is no run, it has no summary, or a file
            of it cannot be read.
        OSError: the page cannot be written.
    """
    summary = load_summary(run_dir)
    manifests, records, items = read_manifests(run_dir), read_records(run_dir), read_items(run_dir)
    settings = manifests[0].config.get("exp", {}) if manifests else {}
    as_asked = _as_asked(_asked_by(summary, manifests)) if items else None
    others = beside_of(beside) if beside else []

    def details() -> Iterator[str]:
        for record in records:
            item = items.get(record.item_id)
            if item is not None and as_asked is not None:
                item = as_asked(item, record.condition)
            yield _json(detail_of(run_dir, record, item, settings, others))

    _clear(run_dir / _FOLDER)
    around = {
        "overview": overview_of(run_dir, summary, manifests, records),
        "listing": Markup(_json(listing_of(records, items))),
        "colours": Markup(_json(_colours())),
        "style": Markup((_HERE / "page.css").read_text(encoding="utf-8")),
        "script": Markup("".join((_HERE / name).read_text(encoding="utf-8") for name in _SCRIPTS)),
        "beside": [other.told(records) for other in others],
        "n": len(records),
        "version": _version(manifests),
    }
    template = _environment().get_template("page.html.jinja")
    bare = template.render(**around, details=[], files=None)
    inside = _place(run_dir, records, details(), largest - len(bare.encode(errors=_LONE)))
    files = None if inside or not records else Markup(_json(_names(records)))
    path = run_dir / PAGE_FILE
    # The page can be made again from the run: the disk is not waited for.
    with (
        publish(path, durable=False) as temporary,
        temporary.open("w", encoding="utf-8", errors=_LONE) as file,
    ):
        file.writelines(template.generate(**around, details=map(Markup, inside), files=files))
    return path


def _place(run_dir: Path, records: Sequence[Record], details: Iterator[str], room: int) -> list[str]:
    """The details that go into the page: all, or none where they would not fit and lie in `report/`."""
    held: list[str] = []
    for detail in details:
        held.append(detail)
        room -= len(detail) + _AROUND
        if room < 0:
            break
    else:
        return held
    (run_dir / _FOLDER).mkdir(exist_ok=True)
    for place, (name, detail) in enumerate(zip(_names(records), chain(held, details), strict=True)):
        write_text(run_dir / name, f"reportItem({place}, {detail});\n", durable=False)
    return []


def _names(records: Sequence[Record]) -> list[str]:
    """The file of each measurement's details, relative to the run's folder."""
    return [
        f"{_FOLDER}/{place:06d}-{pair_stem(record.item_id, record.condition_id)}.js"
        for place, record in enumerate(records)
    ]


def _clear(folder: Path) -> None:
    """Remove what an older page left; a folder that holds anything else stays."""
    if folder.is_dir():
        for path in folder.glob("[0-9]*-*.js"):
            path.unlink()
        if not any(folder.iterdir()):
            folder.rmdir()


def _asked_by(summary: Summary, manifests: Sequence[Manifest]) -> str:
    """The experiment that asked the items: of a run that read old replies again, the old run's."""
    noted = manifests[0].checks.get("rescored") if manifests else None
    return (
        str(noted.get("experiment", summary.experiment)) if isinstance(noted, Mapping) else summary.experiment
    )


def _as_asked(experiment: str) -> Callable[[Item, Mapping[str, Any]], Item] | None:
    """How an experiment changes an item's options under a condition: its `asked_item`, where it has one.

    Its source is looked at first: importing an experiment imports torch.
    """
    from diagnostics.experiments import load_experiment

    source = source_of(experiment)
    if source is None or "asked_item" not in defined_in(source):
        return None
    found: Callable[[Item, Mapping[str, Any]], Item] = load_experiment(experiment).asked_item
    return found


def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _json(value: Any) -> str:
    """JSON in ASCII, safe inside a script element: nothing in it ends the element or begins a comment."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _colours() -> dict[str, str]:
    """256 colours of each map, RGB bytes in base64."""
    at = np.linspace(0.0, 1.0, 256)
    return {
        name: base64.b64encode(
            (mpl.colormaps[source](at)[:, :3] * 255).round().astype(np.uint8).tobytes()
        ).decode()
        for name, source in _COLOURS.items()
    }


def _version(manifests: Sequence[Manifest]) -> str:
    versions = manifests[0].attempts[0].versions if manifests and manifests[0].attempts else {}
    return versions.get("video-mllm-diagnostics", "")
