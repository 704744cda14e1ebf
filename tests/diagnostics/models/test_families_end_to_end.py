"""The whole experiment on a Qwen2.5-VL checkpoint of a person's own, named on the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

from ...resizing import resized
from ...running import Run, attention_drift

BUDGET = 9
SECONDS, FPS = 30, 8


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def run(checkpoints: dict[str, Path], cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return attention_drift(
        tmp_path_factory.mktemp("runs") / "qwen2_5_vl",
        "model=qwen2_5_vl_7b",
        f"model.path={checkpoints['qwen2_5_vl']}",
        "model.device=cpu",
        "model.dtype=float32",
        "data.n_videos=2",
        f"data.seconds={SECONDS}",
        f"data.fps={FPS}",
        "data.questions=2",
        f"sampling.budget={BUDGET}",
        "backend.max_new_tokens=4",
        "exp.item_figures=1",
        cache=cache,
    )


def test_every_item_is_measured_and_nothing_is_warned_of(run: Run) -> None:
    tall, wide = resized(1, 96, 96, factor=28, limits=(128 * 28 * 28, 768 * 28 * 28))
    assert len(run.records) == 4
    for record in run.records:
        assert record.error is None
        assert record.warnings == ()
        assert record.grid == ((5, tall // 14, wide // 14),)
        assert record.n_units == 5
        assert record.tokens_per_unit == tall * wide // 28**2
        assert record.n_visual_tokens == 5 * record.tokens_per_unit
        assert set(record.option_logprobs) == set("ABCD")
    assert not re.search(r"[Ww]arn|deprecat|Loading weights|generation flags", run.printed), run.printed


def test_capture_changed_nothing_and_the_manifest_says_what_ran(
    run: Run, checkpoints: dict[str, Path]
) -> None:
    checks = json.loads((run.folder / "manifest.json").read_text())["checks"]
    assert checks["capture"]["identical"] is True
    assert (checks["capture"]["layers"], checks["capture"]["heads"]) == (3, 8)
    assert checks["model"]["class"] == "Qwen2_5_VLForConditionalGeneration"
    assert checks["model"]["path"] == str(checkpoints["qwen2_5_vl"])
    assert checks["model"]["generation"]["put_aside"]["repetition_penalty"] == 1.05


def test_unit_mass_is_that_of_eager_attention_at_the_trained_positions(
    run: Run, checkpoints: dict[str, Path], cache: Path
) -> None:
    """Another kernel, another decoder, and the positions written down by hand."""
    record = run.records[0]
    (path,) = cache.rglob(record.video_id)
    with av.open(str(path)) as container:
        pictures = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    indices = np.linspace(0, len(pictures) - 1, BUDGET).round().astype(int)
    assert [slot.frame_index for slot in record.slots] == indices.tolist()

    truth = [json.loads(line) for line in next(cache.rglob("truth.jsonl")).read_text().splitlines()]
    item = next(item for item in truth if item["id"] == record.item_id)
    options = "\n".join(f"{letter}. {text}" for letter, text in zip("ABCD", item["options"], strict=True))
    asked = f"{item['question']}\n{options}\nAnswer with the letter of the correct option only."
    processor = AutoProcessor.from_pretrained(checkpoints["qwen2_5_vl"])
    chat = processor.apply_chat_template(
        [{"role": "user", "content": [{"type": "video"}, {"type": "text", "text": asked}]}],
        add_generation_prompt=True,
    )
    inputs = processor(text=[chat], videos=[np.stack([pictures[i] for i in indices])], return_tensors="pt")
    ids = inputs["input_ids"][0].tolist()
    model = AutoModelForImageTextToText.from_pretrained(
        checkpoints["qwen2_5_vl"], attn_implementation="eager"
    ).eval()
    video = np.flatnonzero(np.array(ids) == model.config.video_token_id)
    side = int(np.sqrt(len(video) / 5))
    before, after = video[0], len(ids) - video[-1] - 1
    spacing = 2 * len(pictures) / FPS / BUDGET  # seconds a unit
    times = [int(unit * 2 * spacing) for unit in range(5)]  # two positions a second
    inside = [(before + t, before + r, before + c) for t in times for r in range(side) for c in range(side)]
    start = np.max(inside) + 1
    positions = [(p,) * 3 for p in range(before)] + inside + [(start + p,) * 3 for p in range(after)]
    inputs.pop("second_per_grid_ts", None)
    with torch.inference_mode():
        out = model(**inputs, position_ids=torch.tensor(positions).T[:, None], output_attentions=True)

    tokens = processor.tokenizer(chat.split("<|vision_end|>")[1], return_offsets_mapping=True)
    question = [
        len(ids) - len(tokens["input_ids"]) + place
        for place, (begin, _) in enumerate(tokens["offset_mapping"])
        if begin < len(item["question"])
    ]
    expected = np.stack(
        [
            layer[0][:, question][:, :, video].unflatten(-1, (5, -1)).sum(-1).mean(1).numpy()
            for layer in out.attentions
        ]
    )
    tensors = run.tensors(record)
    measured = tensors.attention.unit_mass[:, :, tensors.role.index("question")]
    np.testing.assert_allclose(measured, expected, atol=1e-5)
    letters = [processor.tokenizer.encode(letter)[0] for letter in "ABCD"]
    scores = torch.log_softmax(out.logits[0, -1].float(), dim=-1)[letters]
    np.testing.assert_allclose(list(record.option_logprobs.values()), scores, atol=1e-4)


def test_rows_sum_to_one(run: Run) -> None:
    for record in run.records:
        np.testing.assert_allclose(run.row_sums(record), 1.0, atol=1e-5)
