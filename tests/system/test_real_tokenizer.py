"""Real films through the real Qwen3 tokenizer and vocabulary, at the published pixel budget.

The weights are random and narrow; tokenizer, vocabulary, processor class and limits are those of the
released models. What the prompt says is read back by decoding it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer

import hooks
from diagnostics.data.items import Item
from diagnostics.models.config import ModelConfig
from diagnostics.models.loading import LoadedModel, load_model
from diagnostics.models.prompting import prepare_inputs
from diagnostics.video.reading import FrameReader
from diagnostics.video.sampling import select_frames, uniform

from ..checkpoints import qwen3_checkpoint
from ..resizing import resized
from ..running import attention_drift
from .conftest import CLIPS, OPTIONS, Film

pytestmark = pytest.mark.system

LIMITS = (4_096, 25_165_824)
START, END, IMAGE, VIDEO = 151_652, 151_653, 151_655, 151_656
"""Published ids of `<|vision_start|>`, `<|vision_end|>`, `<|image_pad|>` and `<|video_pad|>`."""
INSTRUCTION = "Answer with the letter of the correct option only."
QUESTION = "What is seen at 0:03, 木の下で (under the tree)?"
TEMPLATE = """\
{%- macro said(content) -%}
{%- if content is string -%}{{- content -}}
{%- else -%}
{%- for part in content -%}
{%- if part.type == 'video' -%}{{- '<|vision_start|><|video_pad|><|vision_end|>' -}}
{%- elif part.type == 'image' -%}{{- '<|vision_start|><|image_pad|><|vision_end|>' -}}
{%- else -%}{{- part.text -}}{%- endif -%}
{%- endfor -%}
{%- endif -%}
{%- endmacro -%}
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\n' + said(message.content) + '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}
"""


@pytest.fixture(scope="module")
def checkpoint(qwen3_tokenizer_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The published vocabulary of 151,936 on three layers of width 32."""
    tokenizer = AutoTokenizer.from_pretrained(qwen3_tokenizer_folder, padding_side="left")
    return qwen3_checkpoint(
        tmp_path_factory.mktemp("checkpoint") / "real-vocabulary",
        tokenizer,
        TEMPLATE,
        vocab_size=151_936,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=1,
    )


@pytest.fixture(scope="module")
def loaded(checkpoint: Path) -> LoadedModel:
    return load_model(ModelConfig(name="real", path=str(checkpoint), dtype="float32", device="cpu"))


@pytest.fixture(scope="module")
def reader():
    with FrameReader() as opened:
        yield opened


def test_special_ids_are_the_published_ones(loaded: LoadedModel) -> None:
    config, tokenizer = loaded.model.config, loaded.processor.tokenizer
    assert (config.vision_start_token_id, config.vision_end_token_id) == (START, END)
    assert (config.image_token_id, config.video_token_id) == (IMAGE, VIDEO)
    assert config.get_text_config().eos_token_id == 151_645 == tokenizer.eos_token_id
    assert config.get_text_config().vocab_size == 151_936
    assert loaded.provenance["video_size"] == {"shortest_edge": LIMITS[0], "longest_edge": LIMITS[1]}
    names = {"<|vision_start|>": START, "<|vision_end|>": END, "<|image_pad|>": IMAGE, "<|video_pad|>": VIDEO}
    for name, number in names.items():
        assert tokenizer.encode(f"a{name}b", add_special_tokens=False)[1:-1] == [number]


@pytest.mark.parametrize("budget", [7, 64])
@pytest.mark.parametrize("name", CLIPS)
def test_the_prompt_decodes_to_what_was_shown(
    loaded: LoadedModel, reader: FrameReader, films: dict[str, Film], name: str, budget: int
) -> None:
    film = films[name]
    prompt, n_frames = _prompt(loaded, reader, film, budget)
    ids = prompt.inputs["input_ids"][0]
    tokens = hooks.token_map(
        loaded.model,
        loaded.processor,
        prompt.inputs,
        question=prompt.question,
        options=prompt.options,
        n_frames=n_frames,
    )

    # Worked out from the film alone: frame numbers, sizes, times.
    numbers = film.shown(budget)
    units = -(-budget // 2)
    tall, wide = resized(budget, *film.size, factor=32, limits=LIMITS)
    rows, cols = tall // 32, wide // 32
    pairs = np.append(numbers, numbers[-1])[: 2 * units].reshape(units, 2) / film.fps
    times = [f"{mean:.1f}" for mean in pairs.mean(axis=1)]
    lines = "\n".join(f"{letter}. {text}" for letter, text in zip("ABCD", OPTIONS, strict=True))

    told = loaded.processor.tokenizer.decode(ids)
    unit = "<{} seconds><|vision_start|>" + "<|video_pad|>" * (rows * cols) + "<|vision_end|>"
    body = "".join(unit.format(t) for t in times)
    assert told == (
        f"<|im_start|>user\n<|vision_start|>{body}<|vision_end|>{QUESTION}\n{lines}\n{INSTRUCTION}<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert re.findall(r"<([\d.]+) seconds>", told) == times

    ids = ids.numpy()
    assert np.sum(ids == VIDEO) == units * rows * cols == tokens.n_visual
    assert np.sum(ids == START) == np.sum(ids == END) == units + 1
    assert prompt.inputs["video_grid_thw"].tolist() == [[units, 2 * rows, 2 * cols]]
    np.testing.assert_array_equal(tokens.visual, np.flatnonzero(ids == VIDEO))
    assert tokens.n_units == units
    assert tokens.unit_grid.tolist() == [[rows, cols]] * units
    np.testing.assert_allclose(tokens.unit_shown_seconds, [float(t) for t in times])
    slots = np.append(np.arange(budget), -1)[: 2 * units].reshape(units, 2)
    np.testing.assert_array_equal(tokens.unit_slots, slots)
    by_place = np.indices((units, rows, cols)).reshape(3, -1)
    found = [part[tokens.visual] for part in (tokens.unit, tokens.row, tokens.col)]
    np.testing.assert_array_equal(found, by_place)

    decode = loaded.processor.tokenizer.decode
    assert decode(ids[tokens.question]).rstrip("\n") == QUESTION
    assert "".join(decode(ids[tokens.options]).split()) == "".join(lines.split())
    assert decode(ids[tokens.last]) == "\n"
    marked = {int(kind): ids[tokens.kind == kind] for kind in hooks.Kind}
    assert set(marked[hooks.Kind.DELIMITER]) == {START, END}
    assert decode(marked[hooks.Kind.TIMESTAMP]) == "".join(f"<{t} seconds>" for t in times)


def _prompt(loaded: LoadedModel, reader: FrameReader, film: Film, budget: int) -> tuple[Any, int]:
    from diagnostics.video.selection import Frames

    item = Item(
        id=film.path.name,
        video=film.path,
        video_id=film.path.name,
        question=QUESTION,
        options=OPTIONS,
        answer="B",
    )
    selection = select_frames(uniform, uniform.Config(budget=budget), reader.index(film.path), item)
    frames = Frames(reader.read(film.path, selection.frame_indices), selection)
    prompt = prepare_inputs(loaded, item, frames, instruction=INSTRUCTION, max_new_tokens=4)
    return prompt, len(selection)


def test_the_experiment_runs_with_the_real_vocabulary(
    checkpoint: Path, films: dict[str, Film], questions, tmp_path: Path
) -> None:
    run = attention_drift(
        tmp_path / "run",
        "model=qwen3_vl_8b",
        f"model.path={checkpoint}",
        "model.device=cpu",
        "model.dtype=float32",
        *questions("bikes.mp4"),
        "sampling.budget=7",
        "backend.max_new_tokens=4",
        "exp.item_figures=1",
        cache=tmp_path / "cache",
    )
    (record,) = run.records
    tall, wide = resized(7, *films["bikes.mp4"].size, factor=32, limits=LIMITS)
    assert record.error is None
    assert record.warnings == ()
    assert record.grid == ((4, tall // 16, wide // 16),)
    assert [slot.frame_index for slot in record.slots] == films["bikes.mp4"].shown(7).tolist()
    assert set(record.option_logprobs) == set("ABCD"), "each letter is one token of the real vocabulary"
    np.testing.assert_allclose(run.row_sums(record), 1.0, atol=1e-5)
    checks = json.loads((run.folder / "manifest.json").read_text())["checks"]
    assert checks["capture"]["identical"] is True
    assert checks["model"]["parameters"] > 151_936 * 32 * 2
    assert not re.search(r"[Ww]arn|deprecat|Loading weights", run.printed), run.printed
