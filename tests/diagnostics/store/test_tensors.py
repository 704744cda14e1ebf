"""Tensor files: schema 1, whole or not there, the same through h5py and both of xarray's engines."""

import json
import warnings
from dataclasses import fields, replace

import h5py
import numpy as np
import pytest
import xarray
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnostics.errors import DamagedRunError, InconsistentTensorsError
from diagnostics.store import condition_id, read_tensors, write_tensors
from diagnostics.store.tensor_parts import AXES, PARTS, schema_of
from diagnostics.store.tensors import tensor_fault

ENGINES = ["h5netcdf", "netcdf4"]


def assert_same(one, other):
    """Every array, text and mapping equal, NaN to NaN."""
    assert [path for path, _, _ in one.arrays()] == [path for path, _, _ in other.arrays()]
    for (path, variable, left), (_, _, right) in zip(one.arrays(), other.arrays(), strict=True):
        np.testing.assert_array_equal(np.asarray(left, variable.dtype), right, err_msg=path)
    np.testing.assert_array_equal(one.layer, other.layer)
    for name in ("item_id", "condition", "role", "option", "definitions", "versions", "axes"):
        assert getattr(one, name) == getattr(other, name), name
    assert (one.answer and one.answer.text) == (other.answer and other.answer.text)
    assert (one.control and one.control.kind) == (other.control and other.control.kind)


@given(
    shape=st.fixed_dictionaries(
        {
            "layers": st.integers(1, 4),
            "heads": st.integers(1, 5),
            "units": st.integers(1, 9),
            "slots": st.integers(1, 2),
            "options": st.integers(0, 5),
            "queries": st.integers(0, 4),
            "seed": st.integers(0, 9),
        }
    ),
    full=st.booleans(),
    text=st.text(max_size=10).filter(lambda text: "\0" not in text),
)
@settings(max_examples=40, deadline=None)
def test_what_is_written_is_read(tmp_path_factory, make_tensors, shape, full, text):
    path = tmp_path_factory.mktemp("tensors") / "pair.h5"
    written = make_tensors("a/ü", {"budget": 64}, full=full, text=text, **shape)
    write_tensors(path, written)
    assert_same(written, read_tensors(path))
    assert [file.name for file in path.parent.iterdir()] == ["pair.h5"]


@pytest.mark.parametrize("part", ["attention", "rows", "similarity", "control", "answer"])
def test_each_optional_part_can_be_left_out(tmp_path, make_tensors, part):
    written = replace(make_tensors(), **{part: None})
    write_tensors(tmp_path / "pair.h5", written)
    read = read_tensors(tmp_path / "pair.h5")
    assert getattr(read, part) is None
    assert_same(written, read)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("queries", [5, 0])
def test_xarray_opens_every_group_with_its_coordinates(tmp_path, make_tensors, engine, queries):
    path = tmp_path / "pair.h5"
    written = make_tensors("a/b", {"budget": 64}, queries=queries)
    write_tensors(path, written)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tree = xarray.open_datatree(path, engine=engine).load()
    try:
        assert set(tree.children) == set(PARTS)
        assert dict(tree.sizes) == written.axes
        assert set(tree.coords) == set(AXES)
        assert tree["role"].values.tolist() == list(written.role)
        assert tree["option"].values.tolist() == list(written.option)
        assert tree["layer"].values.tolist() == [0, 2]
        for location, variable, array in written.arrays():
            group, name = location.split("/")
            shown = tree[group].to_dataset(inherit=False)[name]
            assert shown.dims == variable.axes, location
            np.testing.assert_array_equal(shown.values, array, err_msg=location)
            assert set(variable.axes) <= set(tree[group].coords), f"{location} lacks coordinates"
        assert tree["answer/text"].item() == "B"
        assert tree.attrs["schema"] == 1
        assert tree.attrs["item_id"] == "a/b"
        assert json.loads(tree.attrs["condition"]) == {"budget": 64}
        attention = tree["attention"].to_dataset()
        rows = attention.unit_mass.sum("unit", skipna=False) + attention.rest_mass
        np.testing.assert_allclose(rows.sel(role=["question", "options", "last"]), 1.0, atol=1e-6)
        assert np.isnan(rows.sel(role="generated")).all()
    finally:
        tree.close()


def test_no_variable_is_called_as_an_axis_is():
    """In a tree of groups the root's scale of that name would hide it."""
    names = {variable.name for part in PARTS.values() for variable in schema_of(part)}
    assert not names & set(AXES)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("group", sorted(PARTS))
def test_xarray_opens_a_single_group(tmp_path, make_tensors, engine, group):
    write_tensors(tmp_path / "pair.h5", make_tensors())
    with (
        warnings.catch_warnings(action="error"),
        xarray.open_dataset(tmp_path / "pair.h5", engine=engine, group=group) as data,
    ):
        assert set(data.data_vars) >= {variable.name for variable in schema_of(PARTS[group])}


def test_the_layout_is_schema_1(tmp_path, make_tensors):
    path = tmp_path / "pair.h5"
    write_tensors(path, make_tensors())
    with h5py.File(path) as file:
        for axis in AXES:
            assert file[axis].is_scale, axis
        arrays = {}
        file.visititems(lambda name, node: arrays.update({name: node}) if "/" in name else None)
        for name, node in arrays.items():
            if name == "answer/text":
                continue
            axes = [dimension[0].name.strip("/") for dimension in node.dims]
            assert len(set(axes)) == len(axes), f"{name} repeats an axis"
            assert (node.compression, node.compression_opts, node.shuffle) == ("gzip", 1, True), name
            expected = [1 if axis in ("layer", "head") else file[axis].size for axis in axes]
            assert list(node.chunks) == expected, name
        kinds = {name: node.dtype for name, node in arrays.items()}
    assert kinds["units/frame_index"] == np.int64
    assert kinds["units/true_seconds"] == np.float64
    assert kinds["units/evidence"] == np.bool_
    assert kinds["tokens/position"] == np.int32
    assert {kinds[n] for n in kinds if n.split("/")[0] in ("attention", "control")} == {np.dtype(np.float32)}
    assert set(arrays) >= {
        "attention/unit_mass", "attention/rest_mass", "attention/token_mass", "attention/sink_score",
        "rows/position", "rows/unit_mass", "rows/rest_mass", "similarity/unit_cosine", "similarity/is_key",
        "similarity/keyframe", "similarity/patch_to_keyframe", "answer/logits", "answer/text",
    }  # fmt: skip


def test_the_schema_is_read_from_the_annotations():
    by_name = {variable.name: variable for variable in schema_of(PARTS["attention"])}
    assert by_name["unit_mass"].axes == ("layer", "head", "role", "unit")
    assert not by_name["unit_mass"].optional
    assert by_name["sink_score"].axes == ("layer", "token")
    assert by_name["sink_score"].optional
    for part in PARTS.values():
        arrays = {variable.name for variable in schema_of(part)}
        assert arrays | {"text", "kind"} >= {field.name for field in fields(part)}
        assert all(set(variable.axes) <= set(AXES) for variable in schema_of(part))


def test_the_same_tensors_are_the_same_bytes(tmp_path, make_tensors):
    for name in ("one.h5", "two.h5"):
        write_tensors(tmp_path / name, make_tensors(seed=3))
    assert (tmp_path / "one.h5").read_bytes() == (tmp_path / "two.h5").read_bytes()


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "ok \udc80\0"])
def test_text_that_hdf5_cannot_hold_is_escaped(tmp_path, make_tensors, text):
    write_tensors(tmp_path / "pair.h5", make_tensors(text=text, item_id=text))
    read = read_tensors(tmp_path / "pair.h5")
    escaped = text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
    assert (read.answer.text, read.item_id) == (escaped, escaped)


def spoil(tensors, part, **values):
    return replace(tensors, **{part: replace(getattr(tensors, part), **values)})


def test_contradictions_are_refused_and_leave_no_file(tmp_path, make_tensors):
    good = make_tensors()
    mass = good.attention.unit_mass
    wrong = {
        "axis unit": spoil(good, "attention", unit_mass=mass[..., :-1]),
        "axis role": replace(good, role=("question",)),
        "axis layer": replace(good, layer=np.arange(3)),
        "has 3 axes": spoil(good, "attention", unit_mass=mass[0]),
        "of attention do not sum to 1": spoil(good, "attention", unit_mass=mass * np.float32(1.01)),
        "of rows do not sum to 1": spoil(good, "rows", rest_mass=good.rows.rest_mass + np.float32(0.01)),
        "of control do not sum": spoil(
            good, "control", rest_mass=np.full_like(good.control.rest_mass, np.nan)
        ),
        "not float32": spoil(good, "attention", unit_mass=mass.view("V4")),
        "not int64": spoil(good, "units", frame_index=good.units.true_seconds),
        "not bool": spoil(good, "units", evidence=good.units.frame_index),
        "complex": spoil(good, "answer", logits=good.answer.logits + 1j),
        "not square": spoil(good, "similarity", unit_cosine=good.similarity.unit_cosine[:, :2]),
    }
    for told, tensors in wrong.items():
        with pytest.raises(InconsistentTensorsError, match=told):
            write_tensors(tmp_path / "pair.h5", tensors)
    assert list(tmp_path.iterdir()) == []


def test_other_number_types_are_converted(tmp_path, make_tensors):
    good = make_tensors()
    tensors = spoil(good, "answer", logits=np.array([1, 2, 3, 4]))
    tensors = spoil(tensors, "tokens", position=good.tokens.position.astype(np.int64))
    tensors = spoil(tensors, "attention", token_mass=good.attention.token_mass.astype(np.float64))
    write_tensors(tmp_path / "pair.h5", tensors)
    read = read_tensors(tmp_path / "pair.h5")
    assert read.tokens.position.dtype == np.int32
    assert read.attention.token_mass.dtype == np.float32
    assert read.answer.logits.tolist() == [1, 2, 3, 4]


def test_faults_of_a_file_are_found(tmp_path, make_tensors):
    path, tensors = tmp_path / "pair.h5", make_tensors()
    assert "FileNotFoundError" in tensor_fault(path, tensors.axes)
    with pytest.raises(FileNotFoundError):
        read_tensors(path)
    write_tensors(path, tensors)
    assert tensor_fault(path, tensors.axes) is None
    assert "axes" in tensor_fault(path, tensors.axes | {"unit": 99})
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"not HDF5" * 100, whole[:-1]):
        path.write_bytes(damaged)
        assert tensor_fault(path, tensors.axes) is not None
        with pytest.raises(DamagedRunError):
            read_tensors(path)
    path.write_bytes(whole)
    with h5py.File(path, "a") as file:
        file.attrs["schema"] = 2
    assert "schema is 2" in tensor_fault(path, tensors.axes)
    with pytest.raises(DamagedRunError, match="schema is 2"):
        read_tensors(path)


def test_a_file_is_replaced_while_it_is_being_read(tmp_path, make_tensors):
    """A reader keeps the file it opened; the next one gets the new file. No lock is in the way."""
    path = tmp_path / "pair.h5"
    old, new = make_tensors(seed=1), make_tensors(seed=2)
    write_tensors(path, old)
    with xarray.open_dataset(path, engine="h5netcdf", group="attention") as data:
        write_tensors(path, new)
        np.testing.assert_array_equal(data.unit_mass.values, old.attention.unit_mass)
    assert_same(read_tensors(path), new)


def test_the_file_knows_its_pair(tmp_path, make_tensors):
    tensors = make_tensors("a/b", {"order": "shuffle", "dose": 0.5})
    assert tensors.pair == ("a/b", condition_id({"dose": 0.5, "order": "shuffle"}))
    write_tensors(tmp_path / "pair.h5", tensors)
    assert read_tensors(tmp_path / "pair.h5").pair == tensors.pair
