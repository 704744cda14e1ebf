"""Ids, hashes and names: the same for equal values, different for different ones, safe as file names."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnostics.store import (
    canonical_json,
    condition_id,
    config_hash,
    differing_keys,
    pair_file_name,
    plain,
    shard_of,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
CONFIG = st.dictionaries(st.text(max_size=4), JSON, max_size=4)
ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=()), max_size=300)  # surrogates too


@given(CONFIG, st.randoms())
@settings(max_examples=60, deadline=None)
def test_the_order_of_keys_and_the_kind_of_numbers_do_not_matter(config, random):
    keys = list(config)
    random.shuffle(keys)
    shuffled = {key: config[key] for key in keys}
    assert config_hash(shuffled) == config_hash(config)
    assert condition_id(shuffled) == condition_id(config)
    assert canonical_json(json.loads(canonical_json(config))) == canonical_json(config)


def test_one_value_has_one_identity_however_it_was_typed():
    spellings = [{"dose": 1}, {"dose": 1.0}, {"dose": np.float32(1)}, {"dose": np.int64(1)}]
    assert len({condition_id(spelling) for spelling in spellings}) == 1
    assert len({config_hash(spelling) for spelling in spellings}) == 1
    assert condition_id({"path": Path("a/b")}) == condition_id({"path": "a/b"})
    assert condition_id({"dose": True}) != condition_id({"dose": 1})
    assert condition_id({"dose": "1"}) != condition_id({"dose": 1})


def test_condition_ids_read_well():
    assert condition_id({}) == "-"
    assert re.fullmatch(
        r"budget=64,order=shuffle-[0-9a-f]{10}", condition_id({"order": "shuffle", "budget": 64})
    )
    assert len(condition_id({"text": "x" * 1000})) <= 51


@pytest.mark.parametrize("undefined", [float("nan"), float("inf"), np.float32("nan"), [np.nan]])
def test_an_identity_holds_nothing_undefined(undefined):
    with pytest.raises(ValueError, match="identity"):
        condition_id({"dose": undefined})


@pytest.mark.parametrize("value", [b"bytes", object(), {1: 2}, {"f": len}, [{None: 1}]])
def test_what_has_no_json_form_is_refused(value):
    with pytest.raises(TypeError):
        plain(value)


def test_undefined_is_null():
    values = {"a": float("nan"), "b": np.array([1.0, np.inf]), "c": np.float32("-inf"), "d": np.bool_(True)}
    assert plain(values) == {"a": None, "b": [1.0, None], "c": None, "d": True}


@given(ANY_TEXT, ANY_TEXT)
@settings(max_examples=150, deadline=None)
def test_any_id_gives_a_file_name_that_is_safe_everywhere(item_id, condition):
    name = pair_file_name(item_id, condition)
    assert re.fullmatch(r"[a-z0-9_][a-z0-9._-]*-[0-9a-f]{16}\.h5", name), name
    assert len(name) <= 80
    assert name.split(".")[0].upper() not in {"CON", "NUL", "AUX", "PRN"}


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT, ANY_TEXT)
@settings(max_examples=150, deadline=None)
def test_different_pairs_have_different_files(a, b, c, d):
    assert (pair_file_name(a, b) == pair_file_name(c, d)) == ((a, b) == (c, d))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Item", "item"),
        ("a/b", "a_b"),
        ("a/b", "a//b"),
        ("\u00e9", "e\u0301"),  # one letter in two Unicode forms
        ("x" * 500, "x" * 501),
        ("", "x"),
        ("../../etc/passwd", "etc/passwd"),
        ("a\0", "a"),
    ],
)
def test_names_that_file_systems_confuse_stay_apart(one, other):
    # Compared as a case-insensitive, normalising file system would.
    assert pair_file_name(one, "-").casefold() != pair_file_name(other, "-").casefold()
    assert "/" not in pair_file_name(one, "-")
    assert pair_file_name("a", "b-c") != pair_file_name("a-b", "c")


def test_ignored_keys_change_no_hash_and_are_not_named():
    old = {"model": {"name": "tiny", "workers": 1}, "hydra": {"launcher": {"a": 1}}, "seed": 1}
    new = {"model": {"name": "tiny", "workers": 8}, "hydra": {"launcher": {"b": 2}}, "seed": 1}
    ignore = {"model.workers", "hydra"}
    assert config_hash(old, ignore) == config_hash(new, ignore)
    assert config_hash(old) != config_hash(new)
    assert differing_keys(old, new, ignore) == []
    assert [d.key for d in differing_keys(old, new)] == [
        "hydra.launcher.a",
        "hydra.launcher.b",
        "model.workers",
    ]


@given(CONFIG, CONFIG)
@settings(max_examples=80, deadline=None)
def test_hashes_differ_exactly_where_a_key_does(old, new):
    # Keys with dots in them could make two different nestings look alike, so they are left out here.
    def undotted(value):
        if isinstance(value, dict):
            return {key.replace(".", "_"): undotted(entry) for key, entry in value.items()}
        return value

    old, new = undotted(old), undotted(new)
    assert bool(differing_keys(old, new)) == (config_hash(old) != config_hash(new))


def test_a_difference_tells_both_values():
    (missing, changed) = differing_keys({"b": {"c": 1}}, {"b": {"c": "2"}, "a": []})
    assert str(missing) == "a: (not set) there, [] here"
    assert str(changed) == 'b.c: 1 there, "2" here'


def test_shards_are_the_same_in_every_process_and_even():
    code = "from diagnostics.store import shard_of; print([shard_of(f'v{i}', 7) for i in range(50)])"
    other = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, check=True,
        cwd=Path(__file__).parents[3], env={"PYTHONHASHSEED": "1"},
    )  # fmt: skip
    assert json.loads(other.stdout) == [shard_of(f"v{i}", 7) for i in range(50)]
    counts = np.bincount([shard_of(f"videos/{i}.mp4", 4) for i in range(4000)], minlength=4)
    # Binomial with p = 1/4: six standard deviations are 164.
    assert np.abs(counts - 1000).max() < 164, f"shards are uneven: {counts}"
    assert shard_of("any", 1) == 0
    with pytest.raises(ValueError, match="at least one"):
        shard_of("any", 0)
