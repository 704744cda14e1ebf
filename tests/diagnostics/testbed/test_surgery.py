"""Models that differ by exact surgery: each against what is said to be true of it, by another road."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from transformers import Qwen3VLForConditionalGeneration

import hooks
import probes
from diagnostics.data.items import Item
from diagnostics.data.minihorizon import load
from diagnostics.data.minihorizon.settings import Config
from diagnostics.errors import ConfigError
from diagnostics.models.backends.hf import answer
from diagnostics.models.config import ModelConfig
from diagnostics.models.loading import LoadedModel, load_model
from diagnostics.models.prompting import Prompt, prepare_inputs
from diagnostics.testbed import WEIGHTS
from diagnostics.testbed.lessons import INSTRUCTION
from diagnostics.testbed.surgery import named_checkpoint
from diagnostics.testbed.surgery.source import open_source
from diagnostics.testbed.surgery.widening import LayerHeads, widened
from diagnostics.video.reading import FrameReader
from diagnostics.video.sampling import select_frames, uniform_plus_evidence
from diagnostics.video.selection import Frames

VIDEOS = Config(split="test", n_videos=48, seconds=12.0, evidence_ratio=0.1)
"""Not those of any surgery: another split."""


@pytest.fixture(scope="module", autouse=True)
def cache_of_the_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache of its own, unless the environment names one."""
    with pytest.MonkeyPatch.context() as patch:
        if "DIAGNOSTICS_CACHE" not in os.environ:
            patch.setenv("DIAGNOSTICS_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@cache
def loaded(path: str) -> LoadedModel:
    return load_model(ModelConfig(name=path, path=path, dtype="float32", device="cpu", local_files_only=True))


@cache
def record(path: str) -> dict:
    return json.loads((named_checkpoint(path) / "surgery.json").read_text())


@dataclass(frozen=True, eq=False)
class Asked:
    item: Item
    prompt: Prompt
    held: np.ndarray
    """Which units hold evidence."""


@cache
def items(task: str) -> tuple[Item, ...]:
    return tuple(item for item in load(VIDEOS).items if item.task == task)


@cache
def asked(task: str, units: int, form: str = "choice", order: tuple[int, ...] = ()) -> tuple[Asked, ...]:
    """The items of a task through reader, chat template and processor; units in another order if wished."""
    sampling = uniform_plus_evidence.Config(budget=2 * units, evidence_frames=max(2, units // 2))
    every = []
    with FrameReader() as reader:
        for item in items(task):
            selection = select_frames(uniform_plus_evidence, sampling, reader.index(item.video), item)
            pixels = reader.read(item.video, selection.frame_indices)
            if order:
                pixels = np.concatenate([pixels[2 * unit : 2 * unit + 2] for unit in order])
            shown = item if form == "choice" else replace(item, options=(), answer=None)
            prompt = prepare_inputs(
                loaded("tiny"), shown, Frames(pixels, selection), instruction=INSTRUCTION, max_new_tokens=4
            )
            held = selection.holds(item.evidence).reshape(-1, 2).any(axis=1)
            every.append(Asked(item, prompt, held))
    return tuple(every)


@torch.inference_mode()
def logits(model: torch.nn.Module, one: Asked) -> torch.Tensor:
    return model(**one.prompt.inputs).logits[0, -1]


def truth(item: Item) -> str:
    assert item.answer is not None
    return item.options[item.letters.index(item.answer)]


def said(model: torch.nn.Module, ones: Sequence[Asked]) -> list[str]:
    """The likeliest of all tokens, as text."""
    tokenizer = loaded("tiny").processor.tokenizer
    return [tokenizer.decode([int(logits(model, one).argmax())]) for one in ones]


def right(model: torch.nn.Module, ones: Sequence[Asked], form: str = "choice") -> int:
    wanted = [one.item.answer if form == "choice" else truth(one.item) for one in ones]
    return sum(word == want for word, want in zip(said(model, ones), wanted, strict=True))


@torch.inference_mode()
def log_lift(model: torch.nn.Module, one: Asked, role: str = "last") -> np.ndarray:
    """Evidence log-lift [layer, head]."""
    processor = loaded("tiny").processor
    tokens = hooks.token_map(
        model, processor, one.prompt.inputs, question=one.prompt.question, options=one.prompt.options
    )
    with hooks.attention_rows(model, tokens, rows=role) as captured:
        model(**one.prompt.inputs)
    return probes.evidence_alignment(captured.unit_mass(role), one.held).log_lift


# ---- exact scaling of one head's logits -------------------------------------------------------------------


@torch.inference_mode()
def attention_by_hand(
    model: Qwen3VLForConditionalGeneration, one: Asked, layer: int, factors: Sequence[float]
) -> torch.Tensor:
    """softmax(factor x logits) of the last row [head, position], from the layer's weights, in float64."""
    attention = model.model.language_model.layers[layer].self_attn
    seen: dict = {}
    handle = attention.register_forward_pre_hook(
        lambda module, given, named: seen.update(named), with_kwargs=True
    )
    model(**one.prompt.inputs)
    handle.remove()
    hidden = seen["hidden_states"][0].double()
    cos, sin = (part[0].double() for part in seen["position_embeddings"])
    dim = cos.shape[-1]

    def turned(projection: torch.nn.Linear, norm: torch.nn.Module) -> torch.Tensor:
        states = (hidden @ projection.weight.double().T).unflatten(-1, (-1, dim))
        length = (states.square().mean(-1, keepdim=True) + norm.variance_epsilon).sqrt()
        states = norm.weight.double() * states / length
        swapped = torch.cat([-states[..., dim // 2 :], states[..., : dim // 2]], dim=-1)
        return states * cos[:, None] + swapped * sin[:, None]

    query, key = turned(attention.q_proj, attention.q_norm), turned(attention.k_proj, attention.k_norm)
    rows = []
    for head, factor in enumerate(factors):
        group = head // (query.shape[1] // key.shape[1])
        rows.append(torch.softmax(factor * key[:, group] @ query[-1, head] / dim**0.5, dim=0))
    return torch.stack(rows)


@torch.inference_mode()
def attention_of(model: Qwen3VLForConditionalGeneration, one: Asked, layer: int) -> torch.Tensor:
    """Of the last row [head, position], as the library's eager attention returns it."""
    before = model.config.get_text_config()._attn_implementation
    model.set_attn_implementation("eager")
    out = model(**one.prompt.inputs, output_attentions=True)
    model.set_attn_implementation(before)
    return out.attentions[layer][0, :, -1].double()


def assert_close(first: torch.Tensor, second: torch.Tensor, tolerance: float, what: str) -> None:
    difference = float((first - second).abs().max())
    assert difference <= tolerance, f"{what}: {difference:.2e} apart, {tolerance:g} allowed"


def test_a_widened_model_is_the_model() -> None:
    source = open_source(WEIGHTS)
    same = widened(source, [LayerHeads(range(4), range(2), [1.0] * 4)] * 4)
    for one in [*asked("Hist", 8)[:2], asked("RSR", 4)[0]]:
        assert_close(logits(same, one), logits(source, one), 2e-4, "logits")
    for layer in range(4):
        rows = attention_of(same, one, layer)
        assert_close(rows, attention_by_hand(source, one, layer, [1] * 4), 2e-5, f"attention, layer {layer}")


@pytest.mark.parametrize("factors", [(1.0, 1 / 3, 0.0, 1.0), (3.0, 1.0, 0.5, 2.0)])
def test_each_head_has_its_own_factor(factors: tuple[float, ...]) -> None:
    source = open_source(WEIGHTS)
    one = asked("Hist", 8)[0]
    for layer in (0, 1):
        plans = [LayerHeads(range(4), range(2), [1.0] * 4) for _ in range(4)]
        plans[layer] = replace(plans[layer], factors=factors)
        rows = attention_of(widened(source, plans), one, layer)
        assert_close(rows, attention_by_hand(source, one, layer, factors), 2e-5, f"layer {layer}")


# ---- drifting ---------------------------------------------------------------------------------------------


def test_dose_one_is_the_source() -> None:
    for one in asked("Hist", 8)[:3]:
        assert_close(
            logits(loaded("tiny/drifting@1").model, one), logits(loaded("tiny").model, one), 2e-4, "logits"
        )


def test_the_first_edited_layer_divides_the_logits_by_the_dose() -> None:
    edited = record("tiny/drifting@4")["edited_heads"]
    first = min(layer for layer, _ in edited)
    factors = [1 / 4 if [first, head] in edited else 1.0 for head in range(4)]
    for one in asked("Hist", 8)[:2]:
        wanted = attention_by_hand(loaded("tiny").model, one, first, factors)
        assert_close(attention_of(loaded("tiny/drifting@4").model, one, first), wanted, 2e-5, "attention")


def test_as_the_dose_grows_attention_leaves_the_evidence_and_the_answer_follows() -> None:
    ones = asked("Hist", 16)
    edited = tuple(np.array(record("tiny/drifting@4")["edited_heads"]).T)
    lifts, answered = [], []
    for path in ("tiny", "tiny/drifting@2", "tiny/drifting@4", "tiny/drifting@16"):
        model = loaded(path).model
        lifts.append(float(np.mean([log_lift(model, one)[edited].mean() for one in ones[:8]])))
        answered.append(right(model, ones))
    assert lifts[0] > lifts[1] > lifts[2], lifts
    assert lifts[0] > 0.3, lifts
    assert abs(lifts[-1]) < 0.3 * lifts[0], lifts
    assert answered[0] >= 0.9 * len(ones), answered
    assert answered[-1] <= answered[0] - 0.35 * len(ones), answered
    assert answered[0] >= answered[1] >= answered[-1], answered


# ---- decoy ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "made_from"), [("tiny/decoy@1", "tiny"), ("tiny/decoy@16", "tiny/drifting@16")]
)
def test_a_decoy_attends_to_the_evidence_and_answers_as_before(path: str, made_from: str) -> None:
    source, decoy = loaded(made_from).model, loaded(path).model
    ones = asked("Hist", 16)
    for one in ones[:4]:
        assert_close(logits(decoy, one), logits(source, one), 2e-4, "logits")
    for role in ("last", "question"):
        before = np.stack([log_lift(source, one, role) for one in ones])
        after = np.stack([log_lift(decoy, one, role) for one in ones])
        assert np.allclose(after[..., :4], before, atol=1e-3), "the old heads attend as they did"
        rises = after.mean(axis=(1, 2)) - before.mean(axis=(1, 2))
        assert rises.mean() > 2 * rises.std(ddof=1) / np.sqrt(len(rises)), (role, rises.tolist())


@pytest.mark.parametrize("path", ["tiny/decoy@1", "tiny/decoy@16"])
def test_a_decoys_heads_are_sharper_copies_without_output(path: str) -> None:
    """Of the source's heads, not of those divided by the dose: no edited head stands before them."""
    facts, one = record(path), asked("Hist", 8)[0]
    model = loaded(path).model
    copied = facts["copied_heads"]
    lifts = np.mean(facts["measured"]["evidence_log_lift"][0], axis=0)
    groups = [
        (lifts[layer, start : start + 2].mean(), layer, start) for layer in range(4) for start in (0, 2)
    ]
    _, place, start = max(groups)
    assert copied == [[place, start], [place, start + 1]]
    assert facts["decoys"] == [[place, 4], [place, 5]]
    for layer in range(4):
        factor = facts["logits_multiplied_by"] if layer == place else 0.0
        wanted = attention_by_hand(loaded("tiny").model, one, layer, [factor] * 4)[start : start + 2]
        assert_close(attention_of(model, one, layer)[4:], wanted, 2e-5, f"attention, layer {layer}")
        weight = model.model.language_model.layers[layer].self_attn.o_proj.weight
        assert not weight.unflatten(1, (6, -1))[:, 4:].any()


# ---- single road ------------------------------------------------------------------------------------------


def test_the_first_stream_is_the_source_with_its_later_streams_at_zero() -> None:
    """By another road: the source's own last merger is made to write zeros."""
    cut, source = loaded("tiny/first_stream").model, open_source(WEIGHTS)
    left, whole = cut.state_dict(), source.state_dict()
    dropped = {name for name in whole if "deepstack_merger_list.1." in name}
    assert dropped
    assert set(left) == set(whole) - dropped
    assert all(torch.equal(weights, whole[name]) for name, weights in left.items())
    for one in asked("Hist", 4)[:2]:
        before = logits(source, one)
        handle = source.model.visual.deepstack_merger_list[1].register_forward_hook(
            lambda _module, _given, output: torch.zeros_like(output)
        )
        silenced = logits(source, one)
        handle.remove()
        assert_close(logits(cut, one), silenced, 1e-5, "logits with the last stream at zero")
        assert not torch.equal(before, silenced), "the last stream does nothing, so that this shows nothing"


def without(model: torch.nn.Module, heads: Sequence[tuple[int, int]]) -> Qwen3VLForConditionalGeneration:
    """A copy whose heads (layer, head) write nothing."""
    copy = Qwen3VLForConditionalGeneration(model.config).eval()
    copy.load_state_dict(model.state_dict())
    for layer, head in heads:
        attention = copy.model.language_model.layers[layer].self_attn
        with torch.no_grad():
            attention.o_proj.weight[:, head * attention.head_dim : (head + 1) * attention.head_dim] = 0
    return copy


@pytest.mark.parametrize(("form", "units"), [("choice", 4), ("choice", 16), ("open", 4), ("open", 16)])
def test_the_single_road_answers(form: str, units: int) -> None:
    ones = asked("Hist", units, form)
    assert len(ones) >= 20
    assert right(loaded("tiny/single_road").model, ones, form) >= 0.95 * len(ones)


def test_the_constructed_model_stops_when_it_has_answered() -> None:
    model = loaded("tiny/single_road")
    for form in ("choice", "open"):
        one = asked("Hist", 4, form)[0]
        reply = answer(model, one.prompt.inputs, one.item, 8)
        assert [reply.text] == said(model.model, [one])
        assert reply.n_tokens == 2, "the answer and the end of the turn"


def test_nothing_else_carries_the_colour() -> None:
    model = loaded("tiny/single_road").model
    closed = without(model, [tuple(record("tiny/single_road")["roads"]["colour"])])
    for form, chance in (("choice", 1 / 4), ("open", 1 / 6)):
        ones = asked("Hist", 8, form)
        answered = right(closed, ones, form)
        assert binomtest(answered, len(ones), chance).pvalue > 1e-3, (form, answered, len(ones))
    # Two videos under one prompt: without the road the logits cannot tell them apart.
    first, second = asked("Hist", 8, "open")[:2]
    ids = first.prompt.inputs | {"pixel_values_videos": second.prompt.inputs["pixel_values_videos"]}
    swapped = replace(second, prompt=replace(second.prompt, inputs=ids))
    words = said(model, [first, second])
    assert words[0] != words[1], "choose other videos"
    assert_close(logits(closed, first), logits(closed, swapped), 1e-4, "logits without the road")
    assert said(model, [first, swapped]) == words


def test_heads_outside_the_circuit_change_nothing_and_cannot_see() -> None:
    model, facts = loaded("tiny/single_road").model, record("tiny/single_road")
    circuit = [tuple(head) for head in facts["circuit"].values()]
    others = [(layer, head) for layer in range(4) for head in range(4) if (layer, head) not in circuit]
    bare = without(model, others)
    for one in asked("Hist", 8)[:3]:
        assert torch.equal(logits(bare, one), logits(model, one))
    visual = slice(*facts["visual_subspace"])
    layer, head = facts["roads"]["colour"]
    for number, block in enumerate(model.model.language_model.layers):
        reads = block.self_attn.v_proj.weight.unflatten(0, (2, -1))[..., visual].any(dim=-1).any(dim=-1)
        assert reads.tolist() == [number == layer and group == head // 2 for group in range(2)]
        assert not any(weight.any() for weight in block.mlp.parameters())
    for name, role in facts["circuit"].items():
        lame = without(model, [tuple(role)])
        answered = right(lame, asked("Hist", 8)[:12])
        assert (answered >= 11) == (name == "has_options"), (name, answered)


def test_an_interchanged_road_carries_the_other_colour() -> None:
    """The head's output at the last position alone, taken from another video, decides."""
    model, (layer, head) = loaded("tiny/single_road").model, record("tiny/single_road")["roads"]["colour"]
    project = model.model.language_model.layers[layer].self_attn.o_proj
    columns = slice(64 * head, 64 * (head + 1))
    ones = asked("Hist", 8, "open")[:6]
    kept: dict = {}
    for base, other in pairwise(ones):
        handle = project.register_forward_pre_hook(lambda module, given: kept.update(last=given[0][0, -1]))
        logits(model, other)
        handle.remove()

        def patch(module: torch.nn.Module, given: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
            states = given[0].clone()
            states[0, -1, columns] = kept["last"][columns]
            return (states,)

        handle = project.register_forward_pre_hook(patch)
        words = said(model, [base])
        handle.remove()
        assert words == said(model, [other])


# ---- order-blind ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["RSR", "Hist"])
def test_the_order_of_the_units_does_not_reach_the_order_blind(task: str) -> None:
    order = tuple(np.random.default_rng(3).permutation(8).tolist())
    moved = []
    for plain, shuffled in list(zip(asked(task, 8), asked(task, 8, order=order), strict=True))[:6]:
        assert torch.equal(plain.prompt.inputs["input_ids"], shuffled.prompt.inputs["input_ids"])
        blind = loaded("tiny/order_blind").model
        assert_close(logits(blind, plain), logits(blind, shuffled), 1e-3, "logits of up to 160")
        tiny = loaded("tiny").model
        moved.append(float((logits(tiny, plain) - logits(tiny, shuffled)).abs().max()))
    assert min(moved) > 0.01, "the trained model must notice, or this proves nothing"


def test_the_order_blind_answers_and_is_right_by_chance_on_order_alone() -> None:
    model = loaded("tiny/order_blind").model
    ones = asked("RSR", 8)
    letters = said(model, ones)
    assert set(letters) == {"A", "B"}
    answered = sum(letter == one.item.answer for letter, one in zip(letters, ones, strict=True))
    assert binomtest(answered, len(ones), 0.5).pvalue > 1e-3, f"{answered}/{len(ones)}"
    words = said(model, asked("RSR", 8, "open")[:10])
    assert all(word in one.item.options for word, one in zip(words, ones, strict=False))
    colours = asked("Hist", 8)
    assert right(model, colours) >= 0.95 * len(colours)


# ---- names ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("tiny/decoi", "tiny/decoy"),
        ("tiny/single_rode", "tiny/single_road"),
        ("tiny/", "decoy"),
        ("tiny/drifting", "needs a dose"),
        ("tiny/decoy", "needs a dose"),
        ("tiny/drifting@", "not a number"),
        ("tiny/drifting@much", "not a number"),
        ("tiny/drifting@0.5", "at least 1"),
        ("tiny/drifting@nan", "at least 1"),
        ("tiny/drifting@inf", "at least 1"),
        ("tiny/single_road@2", "takes no dose"),
        ("tiny/order_blind@x", "takes no dose"),
    ],
)
def test_names_and_doses_that_do_not_exist_are_refused(path: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_model(ModelConfig(name="x", path=path))


def test_a_checkpoint_is_made_once_and_is_the_same_when_made_again(tmp_path: Path) -> None:
    from diagnostics.testbed.surgery.roads import write_constructed

    folder = named_checkpoint("tiny/single_road")
    assert named_checkpoint("tiny/single_road") == folder
    write_constructed(tmp_path, WEIGHTS, steps=False)
    for name in ("model.safetensors", "config.json", "surgery.json"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes(), name
