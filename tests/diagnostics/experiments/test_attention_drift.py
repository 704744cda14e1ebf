"""The main job end to end, against independent roads to its numbers."""

from __future__ import annotations

import json
from pathlib import Path

import av
import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr
from transformers import AutoModelForImageTextToText, AutoProcessor

from diagnostics.store.manifest import read_manifests
from diagnostics.store.record_log import read_records
from diagnostics.store.records import Record, comparable
from diagnostics.store.run_folder import tensor_path
from diagnostics.testbed import WEIGHTS

from .conftest import SMALL, Diagnose, Run


def records(run: Run) -> list[Record]:
    return read_records(run.folder)


def videos(cache: Path) -> Path:
    """The folder of `SMALL`'s videos: other tests of this session have theirs in the same cache."""
    asked = {"n_videos": 3, "seconds": 30.0, "questions": 2, "fps": 8.0}
    (folder,) = [
        path.parent
        for path in cache.rglob("content.json")
        if asked.items() <= json.loads(path.read_text())["config"].items()
    ]
    return folder


def truth(cache: Path) -> dict[str, dict]:
    """Items of the data set by id, from the file beside its videos."""
    path = videos(cache) / "truth.jsonl"
    return {item["id"]: item for item in map(json.loads, path.read_text().splitlines())}


def frames_of(record: Record, cache: Path) -> np.ndarray:
    """The record's frames by decoding the whole file from the start: no index, no seek."""
    path = videos(cache) / record.video_id
    with av.open(str(path)) as container:
        pictures = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    return np.stack([pictures[slot.frame_index] for slot in record.slots])


def test_it_says_what_it_did_and_where_it_put_it(small_run: Run) -> None:
    shown, log = small_run.stdout, (small_run.folder / "run.0.log").read_text()
    assert shown.startswith("attention_drift: 6 items")  # the closing table: nobody watched
    assert small_run.stderr == ""
    assert "model tiny  data minihorizon (6 questions, 3 videos)" in log
    assert "Capturing attention: 6 of 6" in log
    assert "unit_fraction_90" in shown
    for name in ("summary.json", "tables/measures.csv", "figures/attention_drift.png", "run.0.log"):
        assert str(small_run.folder / name) in shown
        assert (small_run.folder / name).stat().st_size > 0
    assert (small_run.folder / "figures" / "attention_drift.pdf").read_bytes().startswith(b"%PDF")
    assert len(list((small_run.folder / "figures" / "items").glob("*.png"))) == 2


def test_the_manifest_says_that_capture_changed_nothing(small_run: Run) -> None:
    manifest = json.loads((small_run.folder / "manifest.json").read_text())
    check = manifest["checks"]["capture"]
    assert check["identical"] is True
    assert check["max_logit_difference"] == 0.0
    assert check["layers"] == 4
    assert manifest["counts"] == {"finished": 6, "failed": 0, "expected": 6}


@pytest.mark.parametrize("engine", ["h5netcdf", "netcdf4"])
def test_rows_sum_to_one_in_every_tensor_file(small_run: Run, engine: str) -> None:
    for record in records(small_run):
        with xr.open_datatree(tensor_path(small_run.folder, record), engine=engine) as tensors:
            attention = tensors["attention"]
            total = attention["unit_mass"].sum("unit") + attention["rest_mass"]
            assert total.sizes == {"layer": 4, "head": 4, "role": 4}
            np.testing.assert_allclose(total.values, 1.0, atol=1e-5)
            by_token = attention["token_mass"].values.reshape(4, 4, 8, -1).sum(axis=-1)
            by_unit = attention["unit_mass"].mean("head").transpose("layer", "role", "unit").values
            np.testing.assert_allclose(by_token, by_unit, atol=1e-6)


def test_unit_mass_is_that_of_eager_attention_on_frames_decoded_in_order(small_run: Run, cache: Path) -> None:
    """Another kernel, another decoder, and the prompt taken apart by hand."""
    model = AutoModelForImageTextToText.from_pretrained(WEIGHTS, attn_implementation="eager").eval()
    processor = AutoProcessor.from_pretrained(WEIGHTS)
    record = records(small_run)[0]
    pictures = frames_of(record, cache)
    item = truth(cache)[record.item_id]
    options = "\n".join(f"{letter}. {text}" for letter, text in zip("ABCD", item["options"], strict=True))
    asked = f"{item['question']}\n{options}\nAnswer with the letter of the correct option only."
    metadata = {
        "fps": 8.0,
        "frames_indices": np.array([slot.frame_index for slot in record.slots]),
        "total_num_frames": 240,
        "duration": 30.0,
    }
    content = [{"type": "video"}, {"type": "text", "text": asked}]
    chat = processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)
    inputs = processor(
        text=[chat],
        videos=[pictures],
        video_metadata=[metadata],
        do_sample_frames=False,
        return_tensors="pt",
    )
    with torch.inference_mode():
        attentions = model(**inputs, output_attentions=True).attentions
    ids = inputs["input_ids"][0].tolist()
    assert record.n_prompt_tokens == len(ids)
    video = [p for p, token in enumerate(ids) if token == model.config.video_token_id]
    tokens_per_unit = len(video) // 8
    assert (record.n_units, record.tokens_per_unit) == (8, tokens_per_unit)
    after = processor.tokenizer(chat.split("<|vision_end|>")[1], return_offsets_mapping=True)
    question = [
        len(ids) - len(after["input_ids"]) + place
        for place, (start, _) in enumerate(after["offset_mapping"])
        if start < len(item["question"])
    ]
    expected = np.stack(
        [
            layer[0][:, question][:, :, video].reshape(4, len(question), 8, tokens_per_unit).sum(-1).mean(1)
            for layer in attentions
        ]
    )
    with xr.open_datatree(tensor_path(small_run.folder, record)) as tensors:
        measured = tensors["attention"]["unit_mass"].sel(role="question").values
    np.testing.assert_allclose(measured, expected, atol=1e-5)


def test_evidence_is_marked_where_the_truth_says(small_run: Run, cache: Path) -> None:
    items = truth(cache)
    covered = 0
    for record in records(small_run):
        windows = items[record.item_id]["evidence"]["seconds"]
        expected = [any(start <= slot.true_seconds < end for start, end in windows) for slot in record.slots]
        with xr.open_datatree(tensor_path(small_run.folder, record)) as tensors:
            marked = tensors["units"]["evidence"].values.ravel()[: len(expected)]
        assert marked.tolist() == expected
        covered += any(expected)
        assert record.measures["evidence_covered"] == float(any(expected))
        assert (record.measures["evidence_log_lift"] is None) == (not any(expected))
    assert covered == 6, "the sampler shows evidence of every item"


def test_records_hold_what_one_needs_to_repeat_the_answer(small_run: Run, cache: Path) -> None:
    items = truth(cache)
    for record in records(small_run):
        assert len(record.slots) == 15
        assert record.grid == ((8, 6, 6),)
        assert record.raw is not None
        assert set(record.option_logprobs) == set("ABCD"[: len(items[record.item_id]["options"])])
        assert {"decode", "prepare", "generate", "control", "probe"} <= set(record.seconds)
        assert record.error is None


def test_tables_are_tidy_and_sweep_every_definition(small_run: Run) -> None:
    table = pd.read_csv(small_run.folder / "tables" / "definitions.csv")
    combinations = table.groupby(["role", "layers", "heads", "weighting", "head_pooling"]).ngroups
    assert combinations == 3 * 4 * 2 * 2 * 2
    metrics = json.loads((small_run.folder / "summary.json").read_text())["metrics"]
    for weighting, suffix in (("attention", ""), ("value", "_value_weighted")):
        chosen = table.query(
            f"role == 'question' and layers == 'all' and heads == 'all' and weighting == '{weighting}'"
            " and head_pooling == 'mass'"
        ).set_index("measure")["value"]
        for name in ("unit_fraction_90", "entropy", "evidence_share", "visual_mass", "entropy_pooled"):
            assert chosen[name] == pytest.approx(metrics[f"{name}{suffix}"]["mean"], rel=1e-5), name
    embeddings = pd.read_csv(small_run.folder / "tables" / "embeddings.csv")
    assert set(embeddings["feature"]) == {"projector", "vit"}
    strata = embeddings.dropna(subset="stratum").pivot_table(
        index="stratum", columns="measure", values="value"
    )
    assert (strata["nearest_seconds"] <= strata["farthest_seconds"]).all()
    assert strata["farthest_seconds"].is_monotonic_increasing


def test_the_same_command_again_measures_nothing_twice(small_run: Run, diagnose: Diagnose) -> None:
    before = (small_run.folder / "samples.0.jsonl").read_bytes()
    summary = (small_run.folder / "summary.json").read_bytes()
    again = diagnose(*SMALL, f"out={small_run.folder}")
    assert again.returncode == 0, again.stderr
    assert (small_run.folder / "samples.0.jsonl").read_bytes() == before
    assert (small_run.folder / "summary.json").read_bytes() == summary


def test_a_folder_of_another_configuration_is_refused(small_run: Run, diagnose: Diagnose) -> None:
    other = diagnose(*SMALL, f"out={small_run.folder}", "exp.key_fraction=0.3")
    assert other.returncode == 2
    assert "exp.key_fraction" in other.stderr
    assert "0.25" in other.stderr


def test_what_cannot_change_results_may_change(small_run: Run, diagnose: Diagnose) -> None:
    other = diagnose(*SMALL, f"out={small_run.folder}", "reading.workers=2", "reading.timeout_seconds=99")
    assert other.returncode == 0, other.stderr


def test_every_job_of_a_multirun_has_a_folder_of_its_own(
    small_run: Run, diagnose: Diagnose, tmp_path: Path
) -> None:
    swept = diagnose(*SMALL, "data.limit=1", f"out={tmp_path}", "exp.role=question,last", "-m")
    assert swept.returncode == 0, swept.stdout + swept.stderr
    runs = [path for path in tmp_path.iterdir() if not path.name.startswith(".")]
    assert len(runs) == 2
    assert all(run.name.startswith("tiny-minihorizon-") for run in runs)
    assert all((run / "summary.json").exists() for run in runs)
    told = [line for line in swept.stdout.splitlines() if line.startswith("exp.role=")]
    assert told == ["exp.role=question", "exp.role=last"]  # which table is of which job
    assert swept.stdout.count("No intervals") == 2  # one item, one video
    assert swept.stderr == ""
    assert all((run / "run.0.log").read_text().count("done after") == 1 for run in runs)
    for run in runs:  # what repeats a job is not the sweep: its own settings, and its folder
        (manifest,) = read_manifests(run)
        module, *arguments = manifest.attempts[0].command[2:]
        assert (module, arguments[-1], "-m" in arguments) == ("diagnostics", f"out={run}", False)
        assert f"++exp.role={manifest.config['exp']['role']}" in arguments


def test_readers_and_threads_do_not_change_the_records(
    small_run: Run, diagnose: Diagnose, tmp_path: Path
) -> None:
    other = diagnose(*SMALL, f"out={tmp_path / 'other'}", "reading.workers=3")
    assert other.returncode == 0, other.stderr
    theirs = [comparable(record) for record in read_records(tmp_path / "other")]
    assert theirs == [comparable(record) for record in records(small_run)]
