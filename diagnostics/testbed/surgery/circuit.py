"""The language model of `single_road` and `order_blind`, written by hand, weight by weight.

    layer 0, head 0   at an option's word: the letter two tokens before it (a rotary head)
    layer 0, head 1   whether there are options at all
    layer 0, head 2   which steps the question names (with steps only)
    layer 2, head 2   reads the colour of the lesion from the video: a constant query, keys "lesion or not"
    layer 2, head 0   reads the steps likewise (with steps only); the layer's MLP cuts them to seen or not
    layer 3, head 1   at the answer: the letter of the option whose word fits what was read
    lm_head           letters where there are options, else the word itself

Everything else is zero. The head dimension is 64 and the rotary base so large that frequencies 16 to 31
do not turn within any context (10^-12 and less a position): what is compared there is compared without
regard to position. Frequencies 0 to 3 do turn and find the letter two tokens back. The third layer is the
first that sees DeepStack's two additions, which carry a part of the read-outs.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

from diagnostics.data.minihorizon.procedure import STEPS
from diagnostics.errors import CheckpointError
from diagnostics.testbed.surgery.layout import COLOURS, LAYOUT, LETTERS
from diagnostics.testbed.surgery.readout import Readout, mergers

__all__ = ["CIRCUIT", "COLOUR_ROAD", "STEP_ROAD", "construct"]

COLOUR_ROAD, STEP_ROAD = (2, 2), (2, 0)
"""Layer and head that read the video."""

CIRCUIT: Mapping[str, tuple[int, int]] = {
    "letter_of_option": (0, 0),
    "has_options": (0, 1),
    "named_steps": (0, 2),
    "step_road": STEP_ROAD,
    "colour_road": COLOUR_ROAD,
    "look_up": (3, 1),
}
"""Every head whose output is not multiplied by zero, by what it does."""

_ONE = 16.0
_HEAD = 64
_THETA = 1e24
_FIXED = _HEAD // 4
"""From this frequency on nothing turns."""
_FREQUENCIES = 4
"""Those that find the letter before a word."""
_TENTH = 0.1
_UNSURE = 0.2
"""Log-odds, a tenth of them, beyond which a reading head's logit levels off."""
_READING, _LOOKING, _FINDING = 14.0, 100.0, 8.0
"""Logits: of a token that surely shows something; of an option that fits; strength of layer 0."""
_SEEN = (0.04, 0.10)
"""Share of a step among all that was read: up to the first it is not seen, from the second on it is."""
_RANK = 0.2
"""Among the steps that are seen the later in the list wins, by this much."""


@dataclass(frozen=True)
class _Writer:
    """Puts weights into the heads of one layer; `unit` undoes the norm, so that values stay what they are."""

    attention: Any
    unit: float

    def query(self, head: int, dimension: int, source: int | slice, weight: float) -> None:
        self.attention.q_proj.weight[_HEAD * head + dimension, source] = weight

    def key(self, group: int, dimension: int, source: int | slice, weight: float) -> None:
        self.attention.k_proj.weight[_HEAD * group + dimension, source] = weight

    def carry(self, head: int, group: int, source: slice, target: slice | int) -> None:
        """The head moves what stands in `source` to `target`; a single target takes the sum."""
        count = source.stop - source.start
        values = torch.eye(count)
        self.attention.v_proj.weight[_HEAD * group : _HEAD * group + count, source] = values
        columns = slice(_HEAD * head, _HEAD * head + count)
        self.attention.o_proj.weight[target, columns] = self.unit * (
            values if isinstance(target, slice) else values.sum(dim=0)
        )

    def sharpness(self, factor: float, dimensions: slice | Sequence[int] = slice(None)) -> None:
        """Aligned unit vectors get a logit of sqrt(64) times `factor`; other dimensions count for nothing."""
        for norm in (self.attention.q_norm, self.attention.k_norm):
            norm.weight[:] = 0
            norm.weight[dimensions] = math.sqrt(factor)


@torch.no_grad()
def construct(
    source: Qwen3VLForConditionalGeneration, tokenizer: Any, readout: Readout, *, steps: bool
) -> Qwen3VLForConditionalGeneration:
    """The constructed model: the vision tower of `source`, the rest by hand.

    Args:
        source: a tiny Qwen3-VL with four layers, DeepStack into the first two.
        tokenizer: of `source`.
        readout: what the mergers are to write.
        steps: whether steps are read too, and answered without regard to their order.

    Raises:
        CheckpointError: a label of MiniHorizon is not one token.
    """
    model: Any = Qwen3VLForConditionalGeneration(_config(source.config)).eval()
    model.model.visual.load_state_dict(source.model.visual.state_dict())
    for parameter in (*model.model.language_model.parameters(), *model.lm_head.parameters()):
        parameter.zero_()
    for name, module in model.model.language_model.named_modules():
        if name.endswith("norm"):
            module.weight.fill_(1.0)
    _see(model, readout, steps=steps)
    words = _words(tokenizer)
    _embed(model.get_input_embeddings().weight, words)
    unit = _ONE / math.sqrt(model.config.text_config.hidden_size)
    layers = model.model.language_model.layers
    _prepare(_Writer(layers[0].self_attn, unit), steps=steps)
    _read(_Writer(layers[COLOUR_ROAD[0]].self_attn, unit), steps=steps)
    if steps:
        _cut_to_seen(layers[STEP_ROAD[0]].mlp, unit)
    _look_up(_Writer(layers[CIRCUIT["look_up"][0]].self_attn, unit))
    _speak(model.lm_head.weight, words, tokenizer, unit, steps=steps)
    return model


def _config(source: Qwen3VLConfig) -> Qwen3VLConfig:
    config = copy.deepcopy(source)
    text: Any = config.text_config
    text.head_dim = _HEAD
    text.rope_parameters["rope_theta"] = _THETA
    text.rope_parameters["mrope_section"] = [12, 10, 10]
    return config


def _see(model: Qwen3VLForConditionalGeneration, readout: Readout, *, steps: bool) -> None:
    """The mergers' last maps: the read-outs, and the constant."""
    seen = LAYOUT.visual
    scale = np.ones(seen.stop - seen.start)
    for detector in (LAYOUT.lesion, LAYOUT.step):
        scale[detector - seen.start] = _TENTH
    if not steps:
        scale[LAYOUT.step - seen.start :] = 0
    for place, merger in enumerate(mergers(model)):
        merger.linear_fc2.weight.zero_()
        merger.linear_fc2.bias.zero_()
        weights = scale[:, None] * readout.weights[place]
        merger.linear_fc2.weight[seen] = torch.from_numpy(weights).float()
    final = mergers(model)[0].linear_fc2.bias
    final[seen] = torch.from_numpy(scale * readout.offset).float()
    final[LAYOUT.one] = _ONE


def _words(tokenizer: Any) -> dict[str, int]:
    """Token of each label, as an answer and, with a blank before it, in a prompt."""
    forms = [form for label in (*COLOURS, *STEPS) for form in (label, f" {label}")]
    tokens = {form: tokenizer.encode(form, add_special_tokens=False) for form in (*forms, *LETTERS)}
    if wrong := [form for form, ids in tokens.items() if len(ids) != 1]:
        raise CheckpointError(
            f"The tokenizer splits {wrong[0]!r} into several tokens, and the circuit compares single ones.",
            remedy="Give surgery a checkpoint of `python -m diagnostics.testbed`.",
        )
    return {form: ids[0] for form, ids in tokens.items()}


def _embed(table: Tensor, words: Mapping[str, int]) -> None:
    table[:, LAYOUT.one] = _ONE
    table[:, LAYOUT.lesion] = table[:, LAYOUT.step] = -1.0
    for place, letter in enumerate(LETTERS):
        table[words[letter], LAYOUT.letter.start + place] = 1
        table[words[letter], LAYOUT.said] = 1
    for labels, target in ((COLOURS, LAYOUT.colour_word), (STEPS, LAYOUT.step_word)):
        for place, label in enumerate(labels):
            for form in (label, f" {label}"):
                table[words[form], target.start + place] = 1
            table[words[label], LAYOUT.said] = 1


def _prepare(write: _Writer, *, steps: bool) -> None:
    """Layer 0: text only."""
    for number in range(_FREQUENCIES):
        turn = 2 * _THETA ** (-2 * number / _HEAD)  # of a letter two tokens back
        write.query(0, number, LAYOUT.one, math.cos(turn))
        write.query(0, number + _HEAD // 2, LAYOUT.one, -math.sin(turn))
        write.key(0, number, LAYOUT.letter, 1.0)
    write.query(1, _FIXED, LAYOUT.one, 1.0)
    write.key(0, _FIXED, LAYOUT.letter, 1.0)
    write.sharpness(_FINDING)
    write.carry(0, 0, LAYOUT.letter, LAYOUT.letter_before)
    write.carry(1, 0, LAYOUT.letter, LAYOUT.has_options)
    if steps:
        write.query(2, _FIXED, LAYOUT.one, 1.0)
        write.key(1, _FIXED, LAYOUT.step_word, 1.0)
        write.carry(2, 1, LAYOUT.step_word, LAYOUT.named_steps)


def _read(write: _Writer, *, steps: bool) -> None:
    """Layer 2: a constant query; keys x / sqrt(x^2 + unsure^2), which only the norm makes level off."""
    write.sharpness(_READING / math.sqrt(_HEAD), [_FIXED])
    roads = [(COLOUR_ROAD[1], LAYOUT.lesion, LAYOUT.colours, LAYOUT.colour_read)]
    if steps:
        roads.append((STEP_ROAD[1], LAYOUT.step, LAYOUT.steps, LAYOUT.step_read))
    for head, shows, which, target in roads:
        group = head // 2
        write.query(head, _FIXED, LAYOUT.one, 1.0)
        write.key(group, _FIXED, shows, 100.0)
        write.key(group, _FIXED + 1, LAYOUT.one, 100.0 * _UNSURE / _ONE)
        write.carry(head, group, which, target)


def _cut_to_seen(mlp: Any, unit: float) -> None:
    """Of each step's share: 0 up to the first bound, rising to its rank's weight at the second."""
    low, high = _SEEN
    steep = 12 / (high - low)
    for place in range(len(STEPS)):
        for sign, bound, row in ((1, low, 2 * place), (-1, high, 2 * place + 1)):
            mlp.gate_proj.weight[row, LAYOUT.step_read.start + place] = steep * unit
            mlp.gate_proj.weight[row, LAYOUT.one] = -steep * bound * unit / _ONE
            mlp.up_proj.weight[row, LAYOUT.one] = unit / _ONE
            mlp.down_proj.weight[LAYOUT.step_seen.start + place, row] = sign * (1 + _RANK * place) / 12


def _look_up(write: _Writer) -> None:
    """Layer 3: what was read against the options' words; the value is the letter before the word."""
    head = CIRCUIT["look_up"][1]
    write.sharpness(_LOOKING / math.sqrt(_HEAD), slice(_FIXED, _FIXED + len(COLOURS) + len(STEPS)))
    pairs = [(LAYOUT.colour_read, LAYOUT.colour_word), (LAYOUT.step_seen, LAYOUT.step_word)]
    dimension = _FIXED
    for read, word in pairs:
        for place in range(read.stop - read.start):
            write.query(head, dimension, read.start + place, 100.0)
            write.key(0, dimension, word.start + place, 1.0)
            dimension += 1
    # Of length one in the norm, and no part of any logit: a weak code stays weak.
    write.query(head, dimension, LAYOUT.one, 100.0 / _ONE)
    write.carry(head, 0, LAYOUT.letter_before, LAYOUT.found)


def _speak(table: Tensor, words: Mapping[str, int], tokenizer: Any, unit: float, *, steps: bool) -> None:
    bias = unit / _ONE
    for place, letter in enumerate(LETTERS):
        table[words[letter], LAYOUT.found.start + place] = 100 * unit
        table[words[letter], LAYOUT.has_options] = 60 * unit
    for place, colour in enumerate(COLOURS):
        table[words[colour], LAYOUT.colour_read.start + place] = 10 * unit
        table[words[colour], LAYOUT.one] = 1 * bias
    for place, step in enumerate(STEPS if steps else ()):
        table[words[step], LAYOUT.step_seen.start + place] = 10 * unit
        table[words[step], LAYOUT.named_steps.start + place] = 60 * unit
        table[words[step], LAYOUT.one] = -20 * bias
    table[tokenizer.convert_tokens_to_ids("<|im_end|>"), LAYOUT.said] = 400 * unit
