"""docs/files.md against what the code writes: the schema of tensor files, the fields of every JSON file."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import h5py
import pytest

from diagnostics.data.items import Evidence, Item, Window
from diagnostics.store import Record
from diagnostics.store.asked import write_items
from diagnostics.store.manifest import Attempt, Counts, Manifest
from diagnostics.store.summary import Metric, Row, Summary
from diagnostics.store.tensor_parts import AXES, PARTS, schema_of

from ...finished_runs import write_run

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "files.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return re.split(rf"^## {re.escape(title)}\n", PAGE, flags=re.MULTILINE)[1].partition("\n## ")[0]


def rows(text: str, columns: int) -> list[list[str]]:
    """The cells of the tables' rows of so many columns, heads left out."""
    found = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line[:1] == "|"
    ]
    return [row for row in found if len(row) == columns and row[0].startswith("`")]


def named(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def names(kind: type) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


def test_the_table_of_arrays_is_the_schema() -> None:
    told = rows(section("A tensor file"), 4)
    assert all(all(row) for row in told)
    assert [row[:3] for row in told] == [
        [
            f"`{part}/{array.name}`",
            ", ".join(array.axes),
            f"{array.dtype}, if asked" if array.optional else str(array.dtype),
        ]
        for part, kind in PARTS.items()
        for array in schema_of(kind)
    ]


def test_the_table_of_axes_is_the_schemas() -> None:
    assert [axis for row in rows(section("A tensor file"), 2) for axis in named(row[0])] == list(AXES)


def test_a_file_has_what_the_page_says(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [{"gini": 0.1, "correct": True}])
    (path,) = (folder / "tensors").iterdir()
    arrays = {row[0].strip("`"): row[1].split(", ") for row in rows(section("A tensor file"), 4)}
    told = section("A tensor file").partition("Attributes of the file:")[2]
    with h5py.File(path, "r") as file:
        assert set(file.attrs) == set(named(told))
        assert set(AXES) <= set(file)
        held = [f"{part}/{name}" for part in PARTS if part in file for name in file[part]]
        assert held
        for name in held:
            assert [scale[0].name.strip("/") for scale in file[name].dims] == arrays[name], name


def test_every_field_of_a_record_has_its_line_once() -> None:
    told = [name for row in rows(section("A record"), 2) for name in named(row[0])]
    assert sorted(told) == sorted(names(Record))


@pytest.mark.parametrize(
    ("title", "kinds"),
    [("summary.json", (Summary, Metric, Row)), ("manifest.json", (Manifest, Counts, Attempt))],
)
def test_every_field_is_named(title: str, kinds: tuple[type, ...]) -> None:
    assert {name for kind in kinds for name in names(kind)} == {
        name for name in named(section(title)) if not name.startswith("docs/")
    }


def test_the_fields_of_an_item(tmp_path: Path) -> None:
    item = Item("q", Path("v.mp4"), "v", "What is it?", evidence=Evidence((Window(1.0, 2.0, 8, 16),)))
    values = json.loads(write_items(tmp_path, [item]).read_text(encoding="utf-8"))
    evidence = values["evidence"]
    written = {*values, *evidence, *evidence["windows"][0]}
    assert set(named(section("items.jsonl"))) == written


def test_a_run_has_the_files_that_the_page_lists(tmp_path: Path) -> None:
    listed = [name for row in rows(PAGE.partition("\n## ")[0], 3) for name in named(row[0])]
    patterns = [re.sub(r"<\w+>", "*", name) for name in listed if not name.startswith(".")]
    folder = write_run(tmp_path / "run", [{"gini": 0.1, "correct": True}])
    for path in folder.rglob("*"):
        place = path.relative_to(folder)
        if path.is_file() and place.parts[0] != ".locks":
            assert any(place.match(pattern) for pattern in patterns), place
