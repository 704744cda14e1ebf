"""docs/families.md: a family of one's own in one file, and code that comes with a checkpoint."""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hooks
from diagnostics.config import RunConfig, run_config
from diagnostics.errors import CheckpointError, ConfigError
from diagnostics.models.config import ModelConfig
from diagnostics.models.loading import LoadedModel, load_model, load_prompting, outline_model
from diagnostics.models.prompting import prepare_inputs
from hooks.families import Family, GridFamily, family_named, family_of, use_family
from hooks.families._own import GROUP

from ...peek import code_of_the_page, peek_checkpoint
from .conftest import a_question, load, uniform

PATH = "peek_family.PeekFamily"
MODULE = "peek_family"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same weights with attention through SDPA and by hand, and the page's family on the path."""
    root = tmp_path_factory.mktemp("own")
    (root / "code").mkdir()
    (root / "code" / f"{MODULE}.py").write_text(code_of_the_page(), encoding="utf-8")
    return {
        "code": root / "code",
        "sdpa": peek_checkpoint(root / "peek"),
        "by_hand": peek_checkpoint(root / "peek_by_hand", by_hand=True),
    }


@pytest.fixture(autouse=True)
def on_the_path(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(folders["code"]))


def peek(folder: Path, **changes: Any) -> LoadedModel:
    return load(folder, **({"family": PATH, "trust_remote_code": str(folder)} | changes))


def prompt(loaded: LoadedModel, frames: int = 7) -> tuple[dict[str, Any], hooks.TokenMap]:
    made = prepare_inputs(
        loaded,
        a_question(),
        uniform(frames, fps=10, source_frames=300),
        instruction="Answer with the letter.",
        max_new_tokens=4,
    )
    inputs = dict(made.inputs)
    return inputs, hooks.token_map(
        loaded.model,
        loaded.processor,
        inputs,
        question=made.question,
        options=made.options,
        n_frames=frames,
    )


def attention_by_hand(model: Any, inputs: dict[str, Any], rows: np.ndarray) -> np.ndarray:
    """[layer, head, row, key]: from the outputs of the layers' own projections, in float64."""
    kept: dict[tuple[int, str], torch.Tensor] = {}
    handles = []
    for number, block in enumerate(model.decoder.blocks):
        for name in ("q", "k"):
            handles.append(
                getattr(block.attend, name).register_forward_hook(
                    lambda _m, _a, output, key=(number, name): kept.__setitem__(key, output[0].double())
                )
            )
    with torch.no_grad():
        model(**inputs)
    for handle in handles:
        handle.remove()
    found = []
    for number in range(len(model.decoder.blocks)):
        q = kept[number, "q"].view(-1, 4, 16).transpose(0, 1)
        k = kept[number, "k"].view(-1, 2, 16).transpose(0, 1).repeat_interleave(2, dim=0)
        scores = q @ k.transpose(-1, -2) / 4
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        found.append(scores.masked_fill(future, float("-inf")).softmax(dim=-1)[:, rows].numpy())
    return np.stack(found)


def test_the_family_of_the_page_maps_its_prompts(folders: dict[str, Path]) -> None:
    loaded = peek(folders["sdpa"])
    assert type(loaded.family).__name__ == "PeekFamily"
    assert loaded.provenance["class"] == "PeekForVideo"
    assert loaded.provenance["family"] == PATH
    inputs, tokens = prompt(loaded)
    ids = inputs["input_ids"][0].numpy()
    assert np.array_equal(tokens.visual, np.flatnonzero(ids == loaded.model.config.video_token_id))
    units, rows, cols = (inputs["video_grid_thw"][0] // torch.tensor([1, 2, 2])).tolist()
    assert tokens.unit_grid.tolist() == [[rows, cols]] * units
    assert tokens.unit_slots.tolist() == [[0, 1], [2, 3], [4, 5], [6, -1]]
    with torch.no_grad(), hooks.visual_features(loaded.model, tokens) as features:
        loaded.model(**inputs)
    expected = loaded.model.look(inputs["pixel_values_videos"]).pooler_output.detach().numpy()
    assert np.array_equal(features["projector"], expected)


def test_attention_of_a_checkpoint_s_own_code_is_captured(folders: dict[str, Path]) -> None:
    loaded = peek(folders["sdpa"])
    inputs, tokens = prompt(loaded)
    pattern = attention_by_hand(loaded.model, inputs, tokens.question)
    with torch.no_grad(), hooks.attention_rows(loaded.model, tokens, "question") as captured:
        loaded.model(**inputs)
    for unit in range(tokens.n_units):
        expected = pattern[..., tokens.visual[tokens.unit_tokens(unit)]].sum(axis=-1).mean(axis=-1)
        assert np.abs(captured.unit_mass("question")[..., unit] - expected).max() < 1e-5
    check = hooks.verify_capture(loaded.model, inputs, tokens, "question")
    assert check.identical
    assert (check.layers, check.heads) == (3, 4)


def test_knockout_in_a_checkpoint_s_own_code_is_the_softmax_without_those_keys(
    folders: dict[str, Path],
) -> None:
    """Its twin does the softmax by hand: there the scores of the same edges are set to minus infinity."""
    loaded, twin = peek(folders["sdpa"]), peek(folders["by_hand"])
    inputs, tokens = prompt(loaded)
    (edges,) = hooks.path_edges(tokens, "video_to_question")
    barred = torch.zeros(len(tokens), len(tokens), dtype=torch.bool)
    barred[np.ix_(edges.queries, edges.keys)] = True
    plain_softmax = torch.Tensor.softmax

    def without(scores: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return plain_softmax(scores.masked_fill(barred, float("-inf")), *args, **kwargs)

    with torch.no_grad():
        untouched = twin.model(**inputs).logits
        torch.Tensor.softmax = without  # type: ignore[method-assign, assignment]
        try:
            expected = twin.model(**inputs).logits
        finally:
            torch.Tensor.softmax = plain_softmax  # type: ignore[method-assign]
        with hooks.knock_out(loaded.model, tokens, "video_to_question"):
            found = loaded.model(**inputs).logits
    assert float((found - expected).abs().max()) < 1e-4
    assert float((untouched - expected).abs().max()) > 1e-2


def test_interventions_go_where_the_page_s_family_says_the_parts_are(folders: dict[str, Path]) -> None:
    """Heads, states, lens and patches in code nobody here knows, each by another road."""
    loaded = peek(folders["sdpa"])
    model = loaded.model
    inputs, tokens = prompt(loaded)
    edited = copy.deepcopy(model)
    with torch.no_grad():
        edited.decoder.blocks[1].attend.out.weight[:, 16:32] = 0
        wanted = edited(**inputs).logits
        with hooks.scale_heads(model, {(1, 1): 0.0}):
            found = model(**inputs).logits
        assert float((found - wanted).abs().max()) < 1e-4
        states = []
        handle = model.decoder.blocks[1].register_forward_hook(lambda _m, _a, out: states.append(out))
        with hooks.residual(model, tokens, layers=[2, 3], positions="question") as seen:
            logits = model(**inputs).logits
        handle.remove()
    assert np.array_equal(seen.states[0], states[0][0, tokens.question].numpy())
    lens = seen.unembed([3, 200]).logits[-1]
    assert np.abs(lens - logits[0][tokens.question][:, [3, 200]].numpy()).max() < 1e-4
    other = inputs | {"pixel_values_videos": -inputs["pixel_values_videos"]}
    with torch.no_grad():
        changed = model(**other).logits[0, -1].numpy()
    everywhere = np.arange(len(tokens))
    assert (
        np.abs(hooks.patch(model, inputs, other, tokens, 1, everywhere) - logits[0, -1].numpy()).max() < 1e-4
    )
    assert np.abs(hooks.patch(model, inputs, other, tokens, 1, []) - changed).max() < 1e-4
    assert np.abs(changed - logits[0, -1].numpy()).max() > 1e-2
    grid = hooks.patch_grid(
        model, inputs, other, tokens, token_ids=[3, 200]
    )  # compares itself with a forward
    assert np.isfinite(grid.logits).all()


def test_attention_by_hand_is_refused_with_the_reason(folders: dict[str, Path]) -> None:
    loaded = peek(folders["by_hand"])
    inputs, tokens = prompt(loaded)
    with torch.no_grad():
        before = loaded.model(**inputs).logits
        with (
            pytest.raises(hooks.UnsupportedModelError, match="PeekAttention computes its attention without"),
            hooks.attention_rows(loaded.model, tokens, "last"),
        ):
            loaded.model(**inputs)
        assert torch.equal(loaded.model(**inputs).logits, before)


def test_code_that_does_not_say_it_knows_sdpa_is_loaded_as_eager(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    """The flag is about transformers' own switch: what the code calls is seen whatever it says."""
    folder = tmp_path / "unsaid"
    shutil.copytree(folders["sdpa"], folder)
    code = folder / "modeling_peek.py"
    code.write_text(
        code.read_text(encoding="utf-8").replace("_supports_sdpa = True", "_supports_sdpa = False")
    )
    with pytest.raises(CheckpointError) as raised:
        peek(folder)
    assert "model.attention=eager" in raised.value.remedy
    loaded = peek(folder, attention="eager")
    inputs, tokens = prompt(loaded)
    assert hooks.verify_capture(loaded.model, inputs, tokens, "question").identical


def test_the_main_road_is_refused_to_it(folders: dict[str, Path]) -> None:
    loaded = peek(folders["sdpa"])
    _, tokens = prompt(loaded)
    use_family(loaded.model, replace(loaded.family, attention_road="interface"))
    with (
        pytest.raises(hooks.UnsupportedModelError, match=r"PeekForVideo .* interface.*"),
        hooks.attention_rows(loaded.model, tokens, "last"),
    ):
        pass


# Code of a checkpoint's own runs when it is named, and not otherwise


def test_no_code_is_run_unless_the_checkpoint_is_named(folders: dict[str, Path]) -> None:
    with pytest.raises(CheckpointError, match="code of its own, which is not run") as raised:
        peek(folders["sdpa"], trust_remote_code=None)
    assert f"model.trust_remote_code={folders['sdpa']}" in raised.value.remedy


@pytest.mark.parametrize("what", [load_model, load_prompting, outline_model])
def test_trust_in_one_checkpoint_is_none_in_another(folders: dict[str, Path], what: Any) -> None:
    config = ModelConfig(
        name="peek", path=str(folders["sdpa"]), family=PATH, trust_remote_code=str(folders["by_hand"])
    )
    with pytest.raises(ConfigError, match=r"trust_remote_code names .*peek_by_hand"):
        what(config)


@pytest.mark.parametrize("what", [load_model, load_prompting, outline_model])
@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("config.json", {"auto_map": {"AutoConfig": "else/where--modeling_peek.PeekConfig"}}),
        ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": [None, "else/where--tokens.Fast"]}}),
        (
            "processor_config.json",
            {"video_processor": {"auto_map": {"AutoVideoProcessor": "else/where--a.B"}}},
        ),
    ],
)
def test_code_of_a_third_repository_is_not_run(
    folders: dict[str, Path], tmp_path: Path, what: Any, file: str, told: dict[str, Any]
) -> None:
    """transformers would download it, whatever it is by now."""
    folder = tmp_path / "points_away"
    shutil.copytree(folders["sdpa"], folder)
    known = json.loads((folder / file).read_text()) if (folder / file).exists() else {}
    (folder / file).write_text(json.dumps(known | told))
    config = ModelConfig(name="peek", path=str(folder), family=PATH, trust_remote_code=str(folder))
    with pytest.raises(CheckpointError, match=f"{file} .* code of another checkpoint, 'else/where'"):
        what(config)


def test_an_outline_has_the_shape_and_no_weights(folders: dict[str, Path]) -> None:
    folder = folders["sdpa"]
    config = ModelConfig(name="peek", path=str(folder), family=PATH, trust_remote_code=str(folder))
    model = outline_model(config).model
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
    assert type(family_of(model)).__name__ == "PeekFamily"


# Where a family comes from


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no_such_module.Family", "does not import"),
        ("peek_family.PeekFamly", "does not import"),
        ("peek_family", "not a family"),
        ("hooks.families.Kind", "not a family"),
        ("hooks.families.GridFamily", "cannot be made without arguments"),
        ("nothing", "does not import"),
        ("hooks.families.qwen3_vl", "answers to qwen3_vl"),
    ],
)
def test_a_path_that_leads_to_no_family_is_refused(folders: dict[str, Path], path: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        peek(folders["sdpa"], family=path)
    if path == "peek_family.PeekFamly":
        assert "PeekFamily" in raised.value.remedy


def test_a_family_is_a_class_an_instance_or_a_module_with_one(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folders["code"] / "peek_instance.py").write_text(
        f"from {MODULE} import PeekFamily\n\nFAMILY = PeekFamily(name='instance')\n", encoding="utf-8"
    )
    for path in ("peek_instance.FAMILY", "peek_instance:FAMILY", "peek_instance"):
        assert peek(folders["sdpa"], family=path).family.name == "instance"
    monkeypatch.delitem(sys.modules, "peek_instance")


def configured(family: str | None) -> RunConfig:
    model = {"name": "peek", "path": "somewhere", "dtype": "float32", "device": "cpu", "family": family}
    return run_config(
        {
            "exp": {"name": "temporal_order"},
            "model": model,
            "data": {"name": "mine"},
            "sampling": {"rule": "uniform", "budget": 8},
            "backend": {"max_new_tokens": 1},
            "reading": {},
            "out": None,
            "threads": 1,
        }
    )


def test_an_edited_family_is_another_run(folders: dict[str, Path], tmp_path: Path) -> None:
    """Its file takes part in the hash of the run, the toolkit's own do not; nothing is imported for it."""
    package = folders["code"] / "my_lab" / "families"
    package.mkdir(parents=True)
    (package / "odd.py").write_text("raise AssertionError('imported')\n", encoding="utf-8")
    before = configured("my_lab.families.odd.Family")
    told = before.resolved["model"]["family_sha256"]
    assert told == hashlib.sha256((package / "odd.py").read_bytes()).hexdigest()
    assert configured("my_lab.families.odd:Family").resolved["model"]["family_sha256"] == told
    stored = json.loads(json.dumps(before.resolved))
    (package / "odd.py").write_text("raise AssertionError('imported again')\n", encoding="utf-8")
    after = configured("my_lab.families.odd.Family")
    assert after.hash != before.hash
    assert run_config(stored).hash == before.hash, "shards are put together under the file that measured them"
    for family in (None, "hooks.families.qwen2_vl.FAMILY", "my_lab.no_such.Family"):
        assert "family_sha256" not in configured(family).resolved["model"]


def test_an_edited_probe_is_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "distant.py").write_text("one = 1\n", encoding="utf-8")
    values = configured(None).resolved
    values = {**values, "exp": {**values["exp"], "probes": ["distant"]}}
    before = run_config(values)
    told = hashlib.sha256((tmp_path / "distant.py").read_bytes()).hexdigest()
    assert before.resolved["exp"]["probes_sha256"] == {"distant": told}
    assert "probes_sha256" not in before.exp, "no setting"
    (tmp_path / "distant.py").write_text("one = 2\n", encoding="utf-8")
    assert run_config(values).hash != before.hash
    assert run_config(before.resolved).hash == before.hash


def install(folder: Path, *points: str) -> None:
    """An installed package, as pip leaves its description."""
    info = folder / "peek_plugin-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: peek-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *points, ""]))


def test_an_installed_family_needs_no_option(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, f"peek = {MODULE}:PeekFamily", "odd = no_such_module:FAMILY")
    monkeypatch.syspath_prepend(str(tmp_path))
    loaded = peek(folders["sdpa"], family=None)
    assert type(loaded.family).__name__ == "PeekFamily"
    assert prompt(loaded)[1].n_units == 4
    assert family_named("qwen3_vl").name == "qwen3_vl"  # the broken one is nobody else's trouble
    with pytest.raises(hooks.FamilyError, match="no_such_module:FAMILY offered for 'odd' does not import"):
        family_named("odd")


@pytest.mark.parametrize(
    ("point", "asked", "message"),
    [
        (f"qwen3_vl = {MODULE}:PeekFamily", "qwen3_vl", "Two families answer to model type 'qwen3_vl'"),
        (f"other = {MODULE}:PeekFamily", "other", "is a family of peek; the model is 'other'"),
        (f"other = {MODULE}:np", "other", "is module, not a family"),
    ],
)
def test_an_installed_family_that_does_not_fit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, asked: str, message: str
) -> None:
    install(tmp_path, point)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(hooks.FamilyError, match=message):
        family_named(asked)
    assert family_named("internvl").name == "internvl"  # nobody else's trouble


def test_a_type_nobody_answers_to_is_refused_with_its_neighbours(folders: dict[str, Path]) -> None:
    with pytest.raises(CheckpointError, match="'peek' has no family") as raised:
        peek(folders["sdpa"], family=None)
    assert "docs/families.md" in raised.value.remedy


def test_a_model_given_a_family_keeps_it(loaded: dict[str, LoadedModel]) -> None:
    """Another family of the same type, on this model and its copies alone."""
    model = copy.deepcopy(loaded["qwen3_vl"].model)
    other = GridFamily(name="other", model_types=("qwen3_vl",), unit_delimited=True, tells_time=True)
    use_family(model, other)
    assert family_of(model) is other
    assert family_of(copy.deepcopy(model)) == other
    assert family_of(loaded["qwen3_vl"].model).name == "qwen3_vl"
    with pytest.raises(hooks.FamilyError, match="the model is 'qwen3_vl'"):
        use_family(model, Family(name="none", model_types=("peek",)))
    with pytest.raises(hooks.FamilyError, match="not a family"):
        use_family(model, "peek")  # type: ignore[arg-type]
