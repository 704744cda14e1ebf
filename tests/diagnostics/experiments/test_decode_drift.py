"""Decode drift: captured rows against the whole text in one eager forward, phases, tables by another road."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from diagnostics.data.items import Evidence, Item, Window
from diagnostics.errors import ConfigError
from diagnostics.experiments.context import Context
from diagnostics.experiments.decode_drift import Config, _Measurement, phases
from diagnostics.experiments.inside import look_inside
from diagnostics.experiments.pairs import Measured, Pair
from diagnostics.experiments.showing import Source
from diagnostics.models.backends.requests import Reply, Written
from diagnostics.models.loading import load_model
from diagnostics.strict import from_mapping
from diagnostics.video.reading import FrameReader

from ...checkpoints import qwen2_5_checkpoint
from ..video.conftest import Clips
from .conftest import Diagnose
from .engine import item_of, open_context, shown_by_frames, walked
from .told import lines_of, table

SMALL = ("+exp=decode_drift", "data.n_videos=3", "data.questions=2", "sampling.budget=12",
         "sampling.evidence_frames=2", "exp.max_new_tokens=8")  # fmt: skip
FORCED = (*SMALL, "exp.min_new_tokens=7", "exp.least_rows=3", "exp.sinks=true")
OWN = (*SMALL, "exp.min_new_tokens=0", "exp.open=true", "data.questions=4")
MEASURED = ("visual_mass", "visual_log_lift", "evidence_mass", "evidence_share", "evidence_log_lift")


@pytest.fixture(scope="module", params=["qwen3_vl", "qwen2_5_vl"])
def context(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Context]:
    folder = tmp_path_factory.mktemp("written")
    model = "tiny_random" if request.param == "qwen3_vl" else str(qwen2_5_checkpoint(folder / "model"))
    with open_context(folder / "run", (), model=model) as opened:
        yield opened


@pytest.fixture(scope="module")
def source(context: Context, tmp_path_factory: pytest.TempPathFactory) -> Source:
    clips = Clips(tmp_path_factory.mktemp("clips"))
    video: Path = clips.encode(clips.folder / "own.mp4", range(1000, 1040), size=(128, 96))
    evidence = Evidence((Window(0.3, 0.5, 10, 16),), "exact")
    item: Item = item_of(video, options=("red", "blue", "green"), answer="B", evidence=evidence)
    with FrameReader() as reader:
        pair = Pair(item, {"frames": [0, 5, 10, 15, 20, 25, 30, 35]})
        ((_, found),) = walked(context, reader, [pair], shown_by_frames)
    assert isinstance(found, Source)
    return found


def measured(context: Context, source: Source, **settings: Any) -> Measured:
    with ExitStack() as stack:
        config = Config(**{"max_new_tokens": 9, "min_new_tokens": 9, **settings})
        return _Measurement(context, config, stack)(Pair(source.item), source)


def test_rows_are_those_of_the_whole_text_in_one_eager_forward(context: Context, source: Source) -> None:
    found = measured(context, source)
    assert found.tensors is not None
    decode = found.tensors.decode
    assert decode is not None
    look = look_inside(context, source.item, source.frames)
    eager = load_model(context.config.model.__class__(**{**vars(context.config.model), "attention": "eager"}))
    said = torch.tensor(decode.written[:-1].astype(np.int64))[None]
    inputs: dict[str, Any] = dict(look.inputs)
    inputs["input_ids"] = torch.cat([inputs["input_ids"], said], dim=1)
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    if "mm_token_type_ids" in inputs:
        types = inputs["mm_token_type_ids"]
        inputs["mm_token_type_ids"] = torch.cat([types, torch.zeros_like(said)], dim=1)
    if "position_ids" in inputs:
        last = inputs["position_ids"].max() + 1
        more = torch.arange(said.shape[1]).expand(*inputs["position_ids"].shape[:-1], -1) + last
        inputs["position_ids"] = torch.cat([inputs["position_ids"], more], dim=-1)
    with torch.no_grad():
        weights = torch.stack(eager.model(**inputs, output_attentions=True).attentions)[:, 0].double().numpy()
    rows = weights[:, :, len(look.tokens) - 1 :]
    evidence = np.isin(look.tokens.unit, np.flatnonzero(look.evidence_units)) & (look.tokens.row >= 0)
    assert 0 < look.evidence_units.sum() < look.tokens.n_units
    for name, where in (
        ("visual_mass", look.tokens.visual),
        ("evidence_mass", np.flatnonzero(evidence)),
    ):
        error = np.abs(getattr(decode, name) - rows[..., where].sum(-1)).max()
        assert error <= 2e-5, f"{name} is off by {error}"
    assert decode.keys.tolist() == list(range(len(look.tokens), len(look.tokens) + 9))
    # A measure of the record, from the eager rows: heads by themselves, then their mean.
    visual, seen = rows[..., look.tokens.visual].sum(-1), rows[..., evidence.nonzero()[0]].sum(-1)
    share = seen / visual
    spans = found.tensors.definitions["phases"]
    first, end = spans["reply"] if spans["reply"][0] < spans["reply"][1] else spans["forced"]
    phase = "reply" if spans["reply"][0] < spans["reply"][1] else "forced"
    drift = (share[:, :, first:end].mean(-1) - share[:, :, 0]).mean()
    told = found.fields["measures"][f"decode_drift@of=evidence_share,phase={phase}"]
    assert told == pytest.approx(drift, abs=1e-4)
    loss = 1 - visual[:, :, first:end].mean() / visual[:, :, 0].mean()
    assert found.fields["measures"][f"visual_loss@phase={phase}"] == pytest.approx(loss, abs=1e-4)


def test_reasoning_is_told_apart(context: Context, source: Source) -> None:
    tokenizer = context.model.processor.tokenizer
    settings = {"min_new_tokens": 0, "max_new_tokens": 24}
    plain = measured(context, source, **settings)
    assert plain.tensors is not None
    assert plain.tensors.decode is not None
    tokens = plain.tensors.decode.written.tolist()
    so_far = [tokenizer.decode(tokens[:k]) for k in range(len(tokens) + 1)]
    place, closes = next(
        (k, new)
        for k in range(2, len(tokens) - 1)
        if (new := so_far[k + 1].removeprefix(so_far[k])) and new not in so_far[k] and new != so_far[k + 1]
    )
    found = measured(context, source, **settings, reasoning=("<none>", closes))
    assert found.tensors is not None
    spans, rows = found.tensors.definitions["phases"], len(tokens)
    assert spans["reasoning"] == [1, place + 1], "rows that wrote up to the closing text"
    assert spans["answer"] == [place + 1, rows]
    visual = found.tensors.decode.visual_mass.mean(axis=(0, 1))  # type: ignore[union-attr]
    for phase, (first, end) in spans.items():
        told = found.fields["measures"][f"visual_mass@phase={phase}"]
        assert told == pytest.approx(visual[first:end].mean(), abs=1e-6), phase
        assert found.fields["measures"][f"reply_rows@phase={phase}"] == end - first


class Letters:
    """A tokenizer of one letter a token."""

    def decode(self, tokens: list[int], *, skip_special_tokens: bool) -> str:
        assert not skip_special_tokens
        return "".join(map(chr, tokens))


def said(text: str, own: int | None = None) -> Written:
    tokens = tuple(map(ord, text))
    return Written(Reply(text, (), (), len(tokens), cut=False), tokens, len(tokens) if own is None else own)


@pytest.mark.parametrize(
    ("text", "own", "opened", "expected"),
    [
        ("B.", None, "", {"reply": (1, 2)}),
        ("B", None, "", {"reply": (1, 1)}),
        ("Bxx", 1, "", {"reply": (1, 1), "forced": (1, 3)}),
        ("ab</t>B.", None, "", {"reply": (1, 8), "reasoning": (1, 6), "answer": (6, 8)}),
        ("<t>ab</t>B</t>.", None, "", {"reply": (1, 15), "reasoning": (1, 9), "answer": (9, 15)}),
        ("ab</t>", None, "", {"reply": (1, 6), "reasoning": (1, 6)}),
        ("</t>B</t>", 5, "", {"reply": (1, 5), "reasoning": (1, 4), "answer": (4, 5), "forced": (5, 9)}),
        ("abc", None, "told <t>", {"reply": (1, 3), "reasoning": (1, 3)}),
        ("<t>abc", None, "", {"reply": (1, 6), "reasoning": (1, 6)}),
        ("a<t>bc", None, "", {"reply": (1, 6)}),
        ("ab", 1, "<t>", {"reply": (1, 1), "forced": (1, 2)}),
    ],
)
def test_which_rows_wrote_what(text, own, opened, expected) -> None:
    found = phases(Letters(), said(text, own), ("<t>", "</t>"), opened)
    assert found == expected


@pytest.fixture(scope="module")
def run(diagnose: Diagnose, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("decoded") / "run"
    done = diagnose(*FORCED, f"out={folder}")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, " ".join(done.stdout.split())


@pytest.fixture(scope="module")
def words(diagnose: Diagnose, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("decoded") / "words"
    done = diagnose(*OWN, f"out={folder}")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_a_letter_is_too_short_and_says_so(run) -> None:
    folder, told = run
    lines = lines_of(folder)
    assert f"{len(lines)} of {len(lines)} replies are too short for a slope (under 3 rows" in told
    for line in lines:
        assert any(warning.startswith("short_reply: 1 rows") for warning in line["warnings"])
        measures = line["measures"]
        assert measures["reply_rows@phase=reply"] == 1
        assert measures["reply_rows@phase=forced"] == 6
        assert measures["decode_slope@of=visual_mass,phase=reply"] is None
        assert measures["decode_slope@of=visual_mass,phase=forced"] is not None
        assert line["raw"] == line["answer"], "what had to go on is no part of the reply"
    summary = json.loads((folder / "summary.json").read_text())["metrics"]
    assert summary["visual_mass_slope"]["n"] == 0
    assert summary["visual_mass_slope_forced"]["n"] == len(lines)


def test_what_had_to_go_on_changes_nothing_before_it(run, diagnose: Diagnose, tmp_path: Path) -> None:
    folder, _ = run
    done = diagnose(*FORCED, "exp.min_new_tokens=0", f"out={tmp_path / 'run'}")
    assert done.returncode == 0, done.stdout + done.stderr
    plain = {line["item_id"]: line for line in lines_of(tmp_path / "run")}
    for line in lines_of(folder):
        other = plain[line["item_id"]]
        assert line["raw"] == other["raw"]
        assert not any("phase=forced" in name for name in other["measures"])
        for name, value in other["measures"].items():
            assert line["measures"][name] == pytest.approx(value, abs=1e-6), name


def test_what_goes_to_sinks_is_in_the_file(run) -> None:
    folder, _ = run
    for line in lines_of(folder):
        with h5py.File(folder / line["tensor_file"]) as file:
            for name in ("visual_mass", "evidence_mass"):
                whole, part = file[f"decode/{name}"][...], file[f"decode/sink_{name}"][...]
                assert whole.shape == part.shape
                assert (part >= 0).all()
                assert (part <= whole + 1e-5).all()
            # The prefill's last row is the role `last`.
            of_role = file["attention/sink_unit_mass"][:, :, file["role"].asstr()[...].tolist().index("last")]
            assert np.abs(file["decode/sink_visual_mass"][:, :, 0] - of_role.sum(-1)).max() <= 1e-5


def test_tables_are_means_of_the_lines(run) -> None:
    folder, _ = run
    lines, drift, rows = lines_of(folder), table(folder, "drift"), table(folder, "rows")
    whole = drift[drift["task"] == "all"].set_index(["phase", "measure"])
    assert set(whole.index) == {(phase, name) for phase in ("reply", "forced") for name in MEASURED}
    for (phase, name), row in whole.iterrows():
        for column, measure in (
            ("decode", f"{name}@phase={phase}"),
            ("drift", f"decode_drift@of={name},phase={phase}"),
            ("slope", f"decode_slope@of={name},phase={phase}"),
        ):
            values = [line["measures"][measure] for line in lines]
            known = [value for value in values if value is not None]
            assert row["n_slope" if column == "slope" else "n"] == len(known)
            if known:
                assert row[column] == pytest.approx(np.mean(known), abs=1e-9), (phase, name, column)
        assert row["decode"] - row["prefill"] == pytest.approx(row["drift"], abs=1e-9)
        # One phase row by row, weighted by how many rows there are: again the phase's mean.
        own = rows[(rows["phase"] == phase) & (rows["measure"] == name)]
        if name in ("visual_mass", "evidence_mass"):
            assert own["value"].mean() == pytest.approx(row["decode"], abs=1e-6)
    video = rows[(rows["measure"] == "visual_mass") & (rows["phase"] == "prefill")].iloc[0]
    assert video["value"] == pytest.approx(
        np.mean([line["measures"]["visual_mass@row=prefill"] for line in lines]), abs=1e-6
    )
    layers = table(folder, "layers")
    own = layers[(layers["phase"] == "forced") & (layers["measure"] == "visual_mass")]
    assert own["layer"].tolist() == [0, 1, 2, 3]
    assert own["drift"].mean() == pytest.approx(whole.loc[("forced", "visual_mass"), "drift"], abs=1e-6)
    assert (folder / "figures" / "decode_drift.png").stat().st_size > 10_000


def test_words_have_rows_of_their_own(words: Path) -> None:
    lines = lines_of(words)
    assert all(line["answer"] is None and line["raw"] for line in lines)
    assert max(line["measures"]["reply_rows@phase=reply"] for line in lines) >= 2
    assert not any("phase=forced" in name for line in lines for name in line["measures"])


def test_a_finished_run_is_not_measured_again(run, diagnose: Diagnose) -> None:
    folder, _ = run
    before = (folder / "samples.0.jsonl").read_bytes()
    done = diagnose(*FORCED, f"out={folder}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (folder / "samples.0.jsonl").read_bytes() == before


def test_two_shards_merged_are_the_run_in_one_piece(run, diagnose: Diagnose, tmp_path: Path) -> None:
    folder = tmp_path / "cut"
    for index in range(2):
        done = diagnose(*FORCED, f"out={folder}", f"shard.index={index}", "shard.count=2")
        assert done.returncode == 0, done.stdout + done.stderr
    done = diagnose("+exp=merge", f"exp.run={folder}")
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("drift", "rows", "layers"):
        whole, merged = table(run[0], name), table(folder, name)
        numbers = whole.select_dtypes("number").columns
        assert np.allclose(whole[numbers], merged[numbers], atol=1e-5, equal_nan=True), name


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"min_new_tokens": 40}, "more than max_new_tokens"),
        ({"least_rows": 1}, "least_rows"),
        ({"reasoning": ["<think>", ""]}, "closes reasoning"),
        ({"min_tokens": 3}, "min_new_tokens"),
        ({"open": True, "instruction": "Say what you see."}, "without an instruction"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(wrong, told) -> None:
    with pytest.raises(ConfigError, match=told):
        from_mapping(Config, wrong, "exp")
