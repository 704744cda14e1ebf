"""The logit lens through the command: the built road is named, and tables by another road."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from diagnostics.errors import ConfigError
from diagnostics.experiments.conditions import Answers
from diagnostics.experiments.lens import Config, course_table, first_tokens
from diagnostics.experiments.write_up import Asked
from diagnostics.store.canonical import condition_id
from diagnostics.store.record_log import read_records
from diagnostics.store.run_folder import tensor_path
from diagnostics.store.tensors import read_tensors
from diagnostics.strict import from_mapping
from diagnostics.testbed.surgery import surgical_checkpoint

from .conftest import Diagnose
from .told import lines_of, table

ROAD = ("+exp=lens", "model=single_road", "data.n_videos=10", "data.tasks=[Hist]", "exp.draws=200")
LAYERS = 4


@pytest.fixture(scope="module")
def run(diagnose: Diagnose, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lens") / "run"
    done = diagnose(*ROAD, f"out={folder}")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def lines(run: Path) -> list[dict]:
    return lines_of(run)


def test_the_lens_names_the_built_road_and_no_other_head(run, lines):
    """The colour's word is written in the road's layer, the letter in the layer that looks it up."""
    built = json.loads((surgical_checkpoint("single_road") / "surgery.json").read_text())
    road, look_up = built["roads"]["colour"], built["circuit"]["look_up"]
    heads = table(run, "heads")
    found = {read: rows[rows["above_null"]] for read, rows in heads.groupby("read")}
    assert found["word"][["layer", "head"]].to_numpy().tolist() == [road]
    assert found["letter"][["layer", "head"]].to_numpy().tolist() == [look_up]
    right = [line for line in lines if line["correct"]]
    assert len(right) >= 3, "the road answers colours"
    for line in right:
        # What is first seen at layer k was written by layer k - 1.
        assert line["measures"]["crossing_word"] == road[0] + 1
        assert line["measures"]["crossing_letter"] == look_up[0] + 1
        assert line["measures"]["settled_letter"] == look_up[0] + 1


def test_the_last_layer_is_what_the_model_answers_from(run):
    for record in read_records(run):
        path = tensor_path(run, record)
        assert path is not None
        kept = read_tensors(path)
        assert kept.layer.tolist() == list(range(LAYERS + 1))
        assert kept.lens is not None
        assert kept.answer is not None
        error = np.abs(kept.lens.letter_logits[-1] - kept.answer.logits).max()
        assert error <= 1e-3 * np.abs(kept.answer.logits).max(), error
        # Head 3.1 alone writes letters but for "are there options" (0.1), the same for all of them.
        written = np.nansum(kept.lens.letter_attribution, axis=(0, 1))
        told = kept.answer.logits - kept.answer.logits.mean()
        assert np.abs(written - written.mean() - told).max() <= 1e-3 * np.abs(told).max() + 1e-4


def test_tables_are_means_of_the_lines(run, lines):
    course = table(run, "course")
    assert set(course["read"]) == {"letter", "word"}
    for row in course.itertuples():
        name = f"gold_probability@read={row.read},layer={row.layer}"
        assert row.value == pytest.approx(np.mean([line["measures"][name] for line in lines]))
    crossings = table(run, "crossings").set_index(["read", "task"])
    crossed = [line["measures"]["crossing_letter"] is not None for line in lines]
    assert crossings.loc[("letter", "all"), "crossed"] == pytest.approx(np.mean(crossed))
    assert crossings.loc[("letter", "all"), "n_crossed"] == sum(crossed)
    units = table(run, "units")
    last = units[(units["layer"] == LAYERS) & (units["measure"] == "word_share")].set_index("units")["value"]
    assert last["evidence"] > last["other"], "units after the lesion say its colour; the others mostly none"
    assert (run / "figures" / "lens.png").stat().st_size > 0


def test_chance_is_of_the_items_that_are_in_the_mean():
    """Two options that begin alike have no words: of words the other item's chance is told."""
    reads = {"two": ("letter",), "four": ("letter", "word")}
    options = {"two": ("red lamp", "red light"), "four": ("red", "green", "blue", "none")}
    records = {
        (item, condition_id({})): SimpleNamespace(
            measures={f"gold_probability@read={read},layer=0": 0.4 for read in reads[item]}
        )
        for item in reads
    }
    answers = Answers(tuple(reads), ("v1", "v2"), ("a", "b"), cast(Any, records))
    items = {item: SimpleNamespace(options=options[item]) for item in reads}
    table = course_table(Asked([], [], answers, cast(Any, items))).set_index(["read", "task"])
    told = table["chance"].to_dict()
    assert told["letter", "all"] == pytest.approx((1 / 2 + 1 / 4) / 2)
    assert told["word", "all"] == pytest.approx(1 / 4)
    assert (told["letter", "a"], told["word", "b"]) == (0.5, 0.25)
    assert np.isnan(told["word", "a"])
    assert table["n"].to_dict()["word", "all"] == 1


def test_words_are_first_tokens(run):
    from transformers import AutoTokenizer

    from diagnostics.data.items import Item

    tokenizer = AutoTokenizer.from_pretrained(surgical_checkpoint("single_road"), local_files_only=True)
    item = Item("i", run, "v", "?", ("red", "blue"), "A")
    assert first_tokens(tokenizer, item) == [tokenizer.encode(t)[0] for t in item.options]
    assert first_tokens(tokenizer, item) != first_tokens(tokenizer, item, " ")


def test_unknown_lenses_are_refused():
    with pytest.raises(ConfigError, match="lens"):
        from_mapping(Config, {"lens": "tuned"}, "exp")
