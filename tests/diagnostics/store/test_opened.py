"""A run opened for a script, against the files read one by one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

import diagnostics
from diagnostics.errors import DiagnosticsError, ForeignFolderError, RunError
from diagnostics.store import PairTensors, Record, RunFolder, read_tensors
from diagnostics.store.tensor_parts import PARTS, schema_of

UNITS = {"a": 3, "b": 5, "c": 4}


@pytest.fixture
def folder(
    tmp_path: Path, make_tensors: Callable[..., PairTensors], make_record: Callable[..., Record]
) -> Path:
    """Three items under two budgets; `d` failed."""
    with RunFolder.open(tmp_path / "run", {"x": 1}, "hash", experiment="made") as run:
        for item, units in UNITS.items():
            for budget in (8, 16):
                condition = {"budget": budget}
                options = 4 if item == "a" else 2
                tensors = make_tensors(item, condition, units=units, options=options, seed=units + budget)
                record = make_record(item, condition, seconds={"decode": 0.5}, correct=item == "a")
                run.save(record, tensors)
        run.save(make_record("d", {"budget": 8}))
    return tmp_path / "run"


def test_records_are_a_table(folder: Path) -> None:
    records = diagnostics.open_run(folder).records
    assert len(records) == 7
    assert records["measures.gini"].tolist() == [0.25] * 7
    assert records["measures.entropy"].isna().all()
    assert sorted(records["condition.budget"].tolist()) == [8] * 4 + [16] * 3
    assert records.set_index(["item_id", "condition.budget"]).loc[("a", 8), "correct"]


@pytest.mark.parametrize("part", sorted(PARTS))
def test_every_array_equals_the_files(folder: Path, part: str) -> None:
    run = diagnostics.open_run(folder)
    found = run.tensors(part)
    assert set(found.data_vars) == {variable.name for variable in schema_of(PARTS[part])}
    files = run.records.dropna(subset="tensor_file")
    for pair, (item, budget, file) in enumerate(
        zip(files["item_id"], files["condition.budget"], files["tensor_file"], strict=True)
    ):
        assert (found.item_id[pair], found.budget[pair]) == (item, budget)
        own = getattr(read_tensors(folder / file), part)
        for variable in schema_of(PARTS[part]):
            whole, expected = found[variable.name][pair].values, getattr(own, variable.name)
            inside = tuple(slice(length) for length in expected.shape)
            np.testing.assert_array_equal(whole[inside], expected)
            assert whole.dtype == expected.dtype
            padding = np.ones(whole.shape, dtype=bool)
            padding[inside] = False
            empty = whole[padding]
            assert np.isnan(empty).all() if whole.dtype.kind == "f" else np.isin(empty, (-1, False)).all()


def test_selections_equal_those_of_the_loaded_array(folder: Path) -> None:
    run = diagnostics.open_run(folder)
    lazy, loaded = run.tensors("attention").unit_mass, run.tensors("attention").unit_mass.load()
    for chosen in (
        {"pair": 1, "layer": 0, "head": 2, "role": 2, "unit": 1},
        {"pair": [0, 4], "head": slice(None, None, 2)},
        {"pair": slice(4, 1, -1), "unit": [4, 0, 0]},
        {"unit": -1},
        {"pair": 0, "unit": [3, 4]},  # padding alone
    ):
        np.testing.assert_array_equal(lazy.isel(chosen).values, loaded.isel(chosen).values)
    np.testing.assert_array_equal(
        lazy.sel(role="last", layer=2).values,
        loaded.values[:, 1, :, loaded.role.values.tolist().index("last")],
    )
    assert run.tensors("units").n_unit.values.tolist() == [3, 3, 5, 5, 4, 4]


def test_pairs_are_chosen_by_item_and_condition(folder: Path) -> None:
    run = diagnostics.open_run(folder)
    assert run.tensors("units", budget=16).item_id.values.tolist() == ["a", "b", "c"]
    one = run.tensors("lens", item="b", budget=8)
    assert dict(one.sizes)["pair"] == 1
    assert dict(one.sizes)["unit"] == 5
    assert one.option.values.tolist() == ["A", "B"]


def test_one_number_opens_one_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    real = h5py.File

    def noting(path: Path, *args: object, **kwargs: object) -> h5py.File:
        opened.append(str(path))
        return real(path, *args, **kwargs)

    run = diagnostics.open_run(folder)
    monkeypatch.setattr(h5py, "File", noting)
    assert len(run.records) == 7
    assert opened == []
    mass = run.tensors("attention").unit_mass
    before = len(opened)
    assert before <= 4, "labels and the names of the arrays"
    float(mass[3, 1, 0, 2, 1])
    assert len(opened) == before + 1


def test_roles_that_differ_are_not_mixed(
    tmp_path: Path, make_tensors: Callable[..., PairTensors], make_record: Callable[..., Record]
) -> None:
    from dataclasses import replace

    with RunFolder.open(tmp_path / "run", {}, "hash") as run:
        for item, roles in (("a", ("last", "unit:1")), ("b", ("last", "unit:2"))):
            tensors = make_tensors(item, full=False)
            attention = tensors.attention
            assert attention is not None
            own = replace(
                attention,
                unit_mass=attention.unit_mass[:, :, :2],
                rest_mass=attention.rest_mass[:, :, :2],
                token_mass=attention.token_mass[:, :2],
            )
            run.save(make_record(item), replace(tensors, role=roles, attention=own))
    opened = diagnostics.open_run(tmp_path / "run")
    mass = opened.tensors("attention").unit_mass
    assert np.isfinite(mass[0].values).all()
    with pytest.raises(RunError, match="one item at a time"):
        mass[1].load()
    assert opened.tensors("attention", item="b").role.values.tolist() == ["last", "unit:2"]


def test_what_is_not_there_is_a_clear_error(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ForeignFolderError, match="no such folder"):
        diagnostics.open_run(tmp_path / "nothing")
    with pytest.raises(ForeignFolderError, match="holds no run"):
        diagnostics.open_run(tmp_path)
    run = diagnostics.open_run(folder)
    with pytest.raises(RunError, match="Did you mean 'attention'"):
        run.tensors("atention")
    with pytest.raises(RunError, match="None of the 6 pairs with tensors"):
        run.tensors("units", budget=32)
    with pytest.raises(DiagnosticsError, match="summary"):
        _ = run.summary
    assert run.manifest.experiment == "made"
