"""The page's model and the file: its numbers are those of the run's files, its texts are texts."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
from markupsafe import escape

from diagnostics.data.items import Item
from diagnostics.errors import DamagedRunError, IncompleteRunError
from diagnostics.report.page import listing, write_page
from diagnostics.report.page.answers import answer_of, question_of
from diagnostics.report.page.detail import detail_of, patch_grids
from diagnostics.report.page.overview import overview_of
from diagnostics.report.page.quantised import restored
from diagnostics.report.page.tables import LONGEST, tables_of
from diagnostics.store import (
    Metric,
    Record,
    RunFolder,
    Summary,
    Tokens,
    config_hash,
    pair_stem,
    read_manifests,
    read_records,
    read_summary,
)
from diagnostics.store.asked import read_items, write_items

from ....finished_runs import CONFIG, attention_tensors, finished_record
from ....page_runs import HOSTILE, PICTURED_SLOTS, write_page_run


class Page(HTMLParser):
    """Elements of the page by name, and the text of each script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_data(self, data: str) -> None:
        if self.elements and self.elements[-1][0] == "script" and self.cdata_elem == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        else:
            self.words.append(data)

    def json(self, name: str) -> Any:
        (text,) = [text for attributes, text in self.scripts if attributes.get("id") == name]
        return json.loads(text)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page_run(tmp_path_factory.mktemp("page") / "run")


@pytest.fixture(scope="module")
def page(run: Path) -> Page:
    return Page(write_page(run).read_text(encoding="utf-8"))


def by_number(run: Path, number: int) -> tuple[int, Any]:
    """The place in the page's list, and the record, of an item by its number."""
    item = list(read_items(run).values())[number]
    records = read_records(run)
    return next((place, record) for place, record in enumerate(records) if record.item_id == item.id)


# -- above the items


def test_the_headline_is_the_summarys(run: Path) -> None:
    told = overview_of(run, read_summary(run), read_manifests(run), read_records(run))
    lines = {line.name: line for line in (*told.headline, *told.more_headline)}
    assert set(lines) == set(read_summary(run).metrics)
    accuracy = lines["accuracy"]
    assert (accuracy.mean, accuracy.interval, accuracy.n) == ("0.250", "0.100 to 0.400", 11)
    assert accuracy.track == (25.0, 10.0, 40.0)
    assert (lines["undefined_one"].mean, lines["gini"].interval, lines["gini"].track) == (
        "undefined",
        "",
        None,
    )


def test_the_headline_is_in_the_order_that_the_run_noted(run: Path, tmp_path: Path) -> None:
    (manifest,) = read_manifests(run)
    noted = replace(manifest, checks={"headline": ["gini", "accuracy", "gone"]})
    told = overview_of(run, read_summary(run), [noted], read_records(run))
    assert [line.name for line in told.headline] == ["gini", "accuracy"]
    assert {line.name for line in told.more_headline} == {"evidence_log_lift", "undefined_one"}


def test_what_went_wrong_names_the_items(run: Path) -> None:
    told = overview_of(run, read_summary(run), read_manifests(run), read_records(run))
    found = {(trouble.kind, trouble.reason): trouble for trouble in told.troubles}
    ids = list(read_items(run))
    failed = found["failed", "OutOfMemoryError"]
    assert (failed.count, failed.items, failed.memory) == (1, [ids[11]], True)
    assert found["left out", "no evidence"].items == ["left-1", "left-2"]
    assert found["no letter", "reply without a letter, counted as wrong"].items == [ids[4]]
    assert found["warning", "fewer frames"].items == [ids[2]]
    assert told.none_rate == "1 of 11 scored replies (9.1%) had no letter"
    assert "11 finished of 12 expected, 1 failed" in dict(told.facts)["pairs"]


def test_the_command_is_the_manifests(run: Path) -> None:
    told = overview_of(run, read_summary(run), read_manifests(run), read_records(run))
    assert told.command.startswith("python ")
    assert read_manifests(run)[0].attempts[0].command[1] in told.command


def test_questions_are_the_experiments_own_words() -> None:
    assert question_of("frame_scaling").startswith(
        "Frame scaling: does accuracy grow with the number of frames"
    )
    assert (
        question_of("no_such_experiment") == question_of("not a name") == question_of("no.such.module") == ""
    )


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (0.1, 0.5, "gets more attention than its share"),
        (-0.5, -0.1, "gets less attention than its share"),
        (-0.1, 0.5, "cannot be told from its share"),
    ],
)
def test_a_claim_follows_the_interval(low: float, high: float, words: str) -> None:
    metric = Metric((low + high) / 2, low, high, 9)
    (first, *_) = answer_of(Summary.of("attention_drift", [], {"evidence_log_lift": metric}))
    assert words in first
    assert "n = 9" in first


def test_an_unknown_experiment_is_told_by_its_differences() -> None:
    metrics = {"accuracy": Metric(0.5, 0.4, 0.6, 8), "a_less_b": Metric(-0.2, -0.3, -0.1, 8)}
    assert answer_of(Summary.of("mine", [], metrics)) == [
        "A less b is below zero: -0.200 (95% interval -0.300 to -0.100, n = 8)."
    ]
    assert answer_of(Summary.of("mine", [], {"x": Metric(None, None, None, 0)})) == []


def test_shares_of_silenced_heads_stand_in_one_sentence() -> None:
    prefix = "gold_log_odds_top_less_random_at_"
    metrics = {f"{prefix}0.05": Metric(0.5, 0.25, 0.75, 9), f"{prefix}0.1": Metric(-0.5, -0.75, -0.25, 9)}
    metrics[f"{prefix}0.2"] = Metric(None, None, None, 0)
    (said,) = answer_of(Summary.of("heads", [], metrics))
    assert said.endswith(
        "share of all heads: 0.05, 0.500 (95% interval 0.250 to 0.750, n = 9);"
        " 0.1, -0.500 (95% interval -0.750 to -0.250, n = 9)."
    )


# -- the items


def test_the_list_is_the_records(run: Path, page: Page) -> None:
    told, records = page.json("listing"), read_records(run)
    assert told == json.loads(json.dumps(listing.listing_of(records, read_items(run))))
    assert told["item"] == [record.item_id for record in records]
    place, record = by_number(run, 6)
    assert told["measures"]["gini"][place] == pytest.approx(record.measures["gini"], rel=1e-5)
    assert told["variants"] == ["gini@role=last"]
    assert told["measures"]["gini@role=last"][place] == 0.25
    assert told["measures"]["probability_of_the_truth"][place] == pytest.approx(np.exp(-1.5), rel=1e-5)
    assert [told["outcome"][by_number(run, number)[0]] for number in (0, 1, 4, 11)] == [
        "right",
        "wrong",
        "none",
        "failed",
    ]
    assert (told["lift"], told["lift_even"]) == ("evidence_log_lift", 0.0)


def test_a_long_list_leaves_other_definitions_to_the_items(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "MOST_NUMBERS", 12 * 3 - 1)
    told = listing.listing_of(read_records(run), {})
    assert (told["variants"], "gini" in told["measures"]) == ([], True)
    assert "gini@role=last" not in told["measures"]


def test_arrays_are_the_tensor_files(run: Path, page: Page) -> None:
    place, record = by_number(run, 5)
    detail = page.json(f"detail-{place}")
    with h5py.File(run / record.tensor_file) as file:
        mass = file["attention/unit_mass"][...].astype(np.float64)
        tokens = file["attention/token_mass"][...].astype(np.float64)
    layers = restored(detail["attention"]["mass"])
    np.testing.assert_allclose(layers, mass.mean(axis=1).transpose(1, 0, 2), atol=layers.max() / 254)
    heads = restored(detail["attention"]["heads"])
    np.testing.assert_allclose(heads, mass[:, :, 0], atol=heads.max() / 254)
    patches = tokens[:, 0].mean(axis=0)
    share = restored(detail["patches"]["heat"])
    np.testing.assert_allclose(share, patches / patches.sum(), atol=share.max() / 254)
    each = restored(detail["patches"]["layers"])
    np.testing.assert_allclose(each, tokens[:, 0] / tokens[:, 0].sum(1, keepdims=True), atol=each.max() / 254)
    pooled = mass[:, :, 0].mean(axis=(0, 1))
    np.testing.assert_allclose(restored(detail["share"]), pooled / pooled.sum(), atol=pooled.max() / 100)


def test_options_pictures_and_evidence(run: Path) -> None:
    _, record = by_number(run, 5)
    detail = detail_of(run, record, read_items(run)[record.item_id])
    assert [option["letter"] for option in detail["options"]] == ["A", "B", "C"]
    assert detail["options"][1]["text"] == HOSTILE["template"]
    assert [option["p"] for option in detail["options"]] == pytest.approx(
        np.exp([-2.0, -0.5, -1.5]), rel=1e-3
    )
    # Units of two frames: slot s is in unit s // 2, and the first of a unit's pictures shows it.
    firsts = dict(reversed([divmod(slot, 2) for slot in PICTURED_SLOTS]))
    assert {picture["unit"]: picture["place"] for picture in detail["pictures"]} == firsts
    assert len(detail["pictures"]) == len(firsts) < len(PICTURED_SLOTS)
    assert {tuple(picture["size"]) for picture in detail["pictures"]} == {(60, 40)}
    assert detail["units"]["evidence"] == [False, False, True, False, False, False]
    assert detail["windows"] == [[6.0, 7.5]]


def test_a_patch_without_a_token_is_undefined() -> None:
    whole = attention_tensors("a", 0, units=2)
    kept = np.arange(12) != 4
    fields = (whole.tokens.position, whole.tokens.unit_index, whole.tokens.row, whole.tokens.col)
    torn = replace(whole, tokens=Tokens(*(field[kept][::-1] for field in fields)))
    grids, placed = patch_grids(torn, np.arange(12.0)[kept][::-1])
    assert grids == [[2, 3], [2, 3]]
    assert placed.tolist() == pytest.approx([0, 1, 2, 3, np.nan, *range(5, 12)], nan_ok=True)


def test_a_failed_item_and_a_run_without_words_are_shown(tmp_path: Path) -> None:
    run = write_page_run(tmp_path / "run", 3)
    (run / "items.jsonl").unlink()
    page = Page(write_page(run).read_text(encoding="utf-8"))
    place = next(place for place, record in enumerate(read_records(run)) if record.error is not None)
    detail = page.json(f"detail-{place}")
    assert detail["error"][0] == "OutOfMemoryError"
    assert detail["question"] is None
    assert "panels" not in detail


# -- the file


def test_hostile_texts_are_texts(page: Page) -> None:
    ours = [attributes for attributes, _ in page.scripts]
    assert sum("id" not in attributes for attributes in ours) == 1, "the page's own script and no other"
    assert not [
        attributes for tag, attributes in page.elements if any(name.startswith("on") for name in attributes)
    ]
    assert [attributes["src"][:10] for tag, attributes in page.elements if tag == "img"] == ["data:image"]
    assert HOSTILE["markup"] in "".join(page.words), "as text, in what went wrong"


def test_nothing_is_fetched(run: Path, page: Page) -> None:
    text = (run / "report.html").read_text(encoding="utf-8")
    for tag, attributes in page.elements:
        for name in ("src", "href", "action", "srcset"):
            value = attributes.get(name)
            assert value is None or value.startswith(("data:", "#")), (tag, value)
    style = re.search(r"<style>(.*?)</style>", text, flags=re.DOTALL)
    assert style is not None
    assert "url(" not in style[1]
    assert "@import" not in style[1]
    assert "innerHTML" not in text
    assert escape(HOSTILE["markup"]) in text


def test_beyond_the_limit_the_items_lie_beside_the_page(run: Path, tmp_path: Path) -> None:
    run = write_page_run(tmp_path / "run", 6)
    whole = Page(write_page(run).read_text(encoding="utf-8"))
    largest = (run / "report.html").stat().st_size + 1_000
    assert write_page(run, largest=largest).stat().st_size > 60_000
    assert not (run / "report").exists(), "what fits stays in one file"
    write_page(run, largest=largest - 1_001)
    assert (run / "report").exists(), "no page is larger than it may be, by one byte"
    small = Page(write_page(run, largest=60_000).read_text(encoding="utf-8"))
    files = small.json("files")
    assert len(files) == 6
    assert not [
        attributes for attributes, _ in small.scripts if str(attributes.get("id")).startswith("detail")
    ]
    for place, name in enumerate(files):
        told = (run / name).read_text(encoding="utf-8")
        assert told.startswith(f"reportItem({place}, ")
        assert json.loads(told.removeprefix(f"reportItem({place}, ").removesuffix(");\n")) == whole.json(
            f"detail-{place}"
        )
    assert sorted(path.name for path in (run / "report").iterdir()) == sorted(
        Path(name).name for name in files
    )
    write_page(run)
    assert not (run / "report").exists(), "what an older page left is gone"


def test_half_a_character_and_a_foreign_picture_do_not_stop_a_page(tmp_path: Path) -> None:
    """JSON of a data set or of a server may hold half a surrogate pair; a person may add a picture."""
    record = Record(item_id="a", video_id="v", target="A", raw="no letter \ud83d", correct=False)
    with RunFolder.open(tmp_path, CONFIG, config_hash(CONFIG), experiment="benchmark") as folder:
        folder.append(record)
        folder.write_summary(Summary.of("benchmark", [record], {}, []))
    pictures = tmp_path / "thumbnails" / pair_stem("a", record.condition_id)
    pictures.mkdir(parents=True)
    (pictures / "cover.jpg").write_bytes(b"")
    page = Page(write_page(tmp_path).read_text(encoding="utf-8"))
    assert page.json("detail-0")["raw"] == "no letter \ud83d"
    assert page.json("detail-0")["pictures"] == []


def test_the_same_run_gives_the_same_page(run: Path) -> None:
    before = write_page(run).read_bytes()
    assert write_page(run).read_bytes() == before


def test_a_page_has_a_plain_model(run: Path) -> None:
    told = overview_of(run, read_summary(run), read_manifests(run), read_records(run))
    json.dumps(asdict(told), allow_nan=False)


def test_short_tables_are_shown_and_long_ones_named(run: Path, tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    pd.DataFrame({"a_b": ["<i>", None], "value": [0.25, np.nan], "n": [3, 4]}).to_csv(
        tmp_path / "tables" / "short.csv", index=False
    )
    pd.DataFrame({"x": range(LONGEST + 1)}).to_csv(tmp_path / "tables" / "long.csv", index=False)
    (tmp_path / "tables" / "empty.csv").write_text("")
    empty, long, short = tables_of(tmp_path)
    assert (empty.n_rows, long.n_rows, list(long.rows)) == (0, LONGEST + 1, [])
    assert list(short.columns) == ["a b", "value", "n"]
    assert [list(row) for row in short.rows] == [["<i>", "0.250", "3"], ["", "", "4"]]
    (tmp_path / "tables" / "torn.csv").write_text('a,b\n"1,2\n')
    with pytest.raises(DamagedRunError, match="no table"):
        tables_of(tmp_path)


def test_a_comparison_is_told_in_its_own_sentences(run: Path, tmp_path: Path) -> None:
    (tmp_path / "sentences.txt").write_text("One is higher.\nThe other is lower.\n")
    told = overview_of(tmp_path, read_summary(run), [], [])
    assert told.answers == ["One is higher.", "The other is lower."]
    assert (told.command, told.facts, told.counts) == ("", [], [])


def test_a_missing_tensor_file_is_named(tmp_path: Path) -> None:
    run = write_page_run(tmp_path / "run", 3)
    record = next(record for record in read_records(run) if record.tensor_file is not None)
    (run / record.tensor_file).unlink()
    with pytest.raises(IncompleteRunError, match="tensor file is missing") as raised:
        write_page(run)
    assert raised.value.item_id == record.item_id
    assert not (run / "report.html").exists()


def test_attention_of_a_file_without_a_whole_definition_is_of_the_role_it_names(tmp_path: Path) -> None:
    run = tmp_path / "run"
    tensors = replace(attention_tensors("a", 0), definitions={"role": "last"}, control=None)
    with RunFolder.open(run, CONFIG, config_hash(CONFIG), experiment="heads") as folder:
        record = folder.save(finished_record("a", "v", tensors), tensors)
    told = detail_of(run, record, None)
    assert told["attention"]["role"] == "last"
    pooled = tensors.attention.unit_mass[:, :, 1].mean(axis=(0, 1))
    np.testing.assert_allclose(restored(told["share"]), pooled / pooled.sum(), atol=0.01)


def test_options_are_those_that_were_asked_under_the_condition(tmp_path: Path) -> None:
    run, item = tmp_path / "run", Item("a", Path("v"), "v", "Which?", ("one", "two"), "A")
    with RunFolder.open(run, CONFIG, config_hash(CONFIG), experiment="mcq_robustness") as folder:
        for asked in ("standard", "none_of_the_above"):
            folder.append(
                Record(item_id="a", video_id="v", condition={"asked": asked}, answer="A", correct=True)
            )
        folder.write_summary(Summary.of("mcq_robustness", folder.records(), {}))
    write_items(run, [item])
    page = Page(write_page(run).read_text(encoding="utf-8"))
    shown = {
        condition: [option["text"] for option in page.json(f"detail-{place}")["options"]]
        for place, condition in enumerate(page.json("listing")["condition"])
    }
    assert shown["asked standard"] == ["one", "two"]
    assert shown["asked none_of_the_above"][:2] == ["one", "two"]
    assert len(shown["asked none_of_the_above"]) == 3
