"""The part of a reply that answers: reasoning, special tokens, role names and mark-up taken away."""

from __future__ import annotations

import re

__all__ = ["boxes", "plain", "tags", "without_reasoning"]

_REASONING = (
    r"(?:seed:think|think|thinking|thoughts?|reasoning|reflection|analysis|scratchpad"
    r"|rationale|summary|caption)"
)
_CLOSE = re.compile(rf"</\s*{_REASONING}\s*>", re.IGNORECASE)
_OPEN = re.compile(rf"<\s*{_REASONING}\s*>", re.IGNORECASE)
_PAIR = re.compile(rf"<\s*({_REASONING})\s*>.*?</\s*\1\s*>", re.IGNORECASE | re.DOTALL)
_SPELLINGS = (
    (re.compile(r"&lt;(/?\s*[\w:]+)&gt;"), r"<\1>"),
    (re.compile(r"◁(/?\w+)▷"), r"<\1>"),
    (re.compile(r"\[(/?think(?:ing)?)\]", re.IGNORECASE), r"<\1>"),
    (re.compile(r"<\|begin_of_thought\|>"), "<think>"),
    (re.compile(r"<\|end_of_thought\|>"), "</think>"),
    (re.compile(r"<\|begin_of_(?:box|solution)\|>"), "<answer>"),
    (re.compile(r"<\|end_of_(?:box|solution)\|>"), "</answer>"),
    # Channels, with their tokens and without (a tokenizer that skips special ones).
    (re.compile(r"<\|channel\|>\s*(?:analysis|commentary)\b[^<]*<\|message\|>"), "<think>"),
    (re.compile(r"<\|channel\|>\s*final\b[^<]*<\|message\|>"), "</think>"),
    (re.compile(r"\Aanalysis(?=[A-Z])"), "<think>"),
    (re.compile(r"assistantfinal"), "</think>"),
)
"""Ways to write the same tags."""

_SPECIAL = re.compile(
    r"<\|[^|<>]{1,40}\|>|</?(?:s|bos|eos|pad|unk|start_of_turn|end_of_turn|end_of_utterance)>|\[/?INST\]",
    re.IGNORECASE,
)
_ROLE = re.compile(
    r"\A\W*(?:assistant|model|bot|ai)\s*(?::|\n)\s*|^(?:assistant|model|bot|ai)\s*:\s*",
    re.IGNORECASE | re.MULTILINE,
)
_LATEX = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|mathsf|bf|rm)\s*\{([^{}]*)\}")
_FENCE = re.compile(r"^[^\S\n]*(?:```|~~~)[^\S\n]*\w*[^\S\n]*$", re.MULTILINE)
_MARKS = re.compile(
    r"\*+|`+|~~|\$+|\\[()\[\]]|(?<!\w)_+|_+(?!\w)|^[^\S\n]*#+[^\S\n]*|^[^\S\n]*>[^\S\n]*", re.MULTILINE
)
_TAGS = re.compile(
    r"<(?P<name>answer|final_?answer|final|ans|output|choice|option|conclusion|result|response|solution)>"
    r"(?P<held>.*?)(?:</(?P=name)>|\Z)",
    re.DOTALL | re.IGNORECASE,
)
_BOX = re.compile(r"\\f?boxed\s*\{([^{}]*)\}")
_JOINED = re.compile(
    r"\W*(?:and|or|or maybe|or perhaps|as well as|und|oder|et|ou|y|o|e|und|и|или|和|或|或者|、)?\W*", re.I
)


def without_reasoning(reply: str) -> str | None:
    """The text without reasoning; None where one was opened and never closed: the answer never came.

    A closing tag alone counts: many templates open the reasoning in the prompt.
    """
    text = reply
    for spelling, tag in _SPELLINGS:
        text = spelling.sub(tag, text)
    last = max(_CLOSE.finditer(text), key=lambda match: match.end(), default=None)
    rest = text if last is None else text[last.end() :]
    if _OPEN.search(rest):
        return None
    if last is not None and not _SPECIAL.sub("", rest).strip():
        # Nothing after it: perhaps the answer stood before. A tag without its partner leaves nothing.
        before = _PAIR.sub("", text)
        rest = "" if _CLOSE.search(before) or _OPEN.search(before) else before
    return rest


def tags(text: str) -> list[str] | None:
    """What the last answer tag or box holds, with those joined to it by no more than a comma or "or".

    None where there is no tag. Earlier ones, with words in between, were given up for the last.
    """
    return _last_of(text, [(m.start(), m.end(), m["held"]) for m in _TAGS.finditer(text)])


def boxes(text: str) -> list[str] | None:
    """The same of `\\boxed{}`."""
    bare = _LATEX.sub(r"\1", text)
    return _last_of(bare, [(m.start(), m.end(), m[1]) for m in _BOX.finditer(bare)])


def _last_of(text: str, spans: list[tuple[int, int, str]]) -> list[str] | None:
    if not spans:
        return None
    taken = [spans[-1]]
    for span in reversed(spans[:-1]):
        if not _JOINED.fullmatch(text[span[1] : taken[0][0]]):
            break
        taken.insert(0, span)
    return [held for _, _, held in taken]


def plain(text: str) -> str:
    """Without special tokens, role names, code fences, emphasis and mathematics."""
    text = _ROLE.sub("", _SPECIAL.sub("", text))
    return _MARKS.sub("", _FENCE.sub("", _LATEX.sub(r"\1", text))).strip()
