"""From a stretch of text back to the tokens that carry it.

Tokens are decoded one after another and their characters laid end to end, so a token belongs to a
text where their characters overlap. This holds whatever the tokenizer merged across the text's
edges, and needs no second tokenization that might cut elsewhere.

Everything is decoded behind one letter, which is taken off again: decoders of the SentencePiece kind
(LLaVA-NeXT-Video's Llama) drop the space that begins a text, and so would drop that of every word.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int

from hooks.errors import TokenMapError

__all__ = ["TokenText", "special_ids"]

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_LONGEST_CHARACTER = 4  # bytes of UTF-8, hence tokens that can share one character


@dataclass(frozen=True)
class TokenText:
    """The decoded text of consecutive tokens and where each of them lies in it.

    Attributes:
        text: the decoded text, special tokens included.
        spans: first and one-past-last character of each token. Tokens that hold parts of one
            character have the same span.
    """

    text: str
    spans: Int[np.ndarray, "token 2"]

    @classmethod
    def decode(cls, tokenizer: Any, ids: Sequence[int]) -> TokenText:
        """Decode `ids` and remember each token's characters.

        Raises:
            TokenMapError: the tokenizer decodes the whole otherwise than the sum of its parts.
        """
        anchor = _Anchor.of(tokenizer)
        spans = np.zeros((len(ids), 2), dtype=np.int64)
        pieces: list[str] = []
        start, first = 0, 0
        for last in range(len(ids)):
            piece = anchor.decode(ids[first : last + 1])
            unfinished = piece.endswith(_REPLACEMENT) and last - first + 1 < _LONGEST_CHARACTER
            if unfinished and last + 1 < len(ids):
                continue  # a character whose bytes are spread over several tokens
            spans[first : last + 1] = start, start + len(piece)
            pieces.append(piece)
            start, first = start + len(piece), last + 1
        text = "".join(pieces)
        if text != anchor.decode(ids):
            raise TokenMapError(
                f"The tokenizer decodes {len(ids)} tokens together otherwise than piece by piece.",
                remedy="Positions of question and options cannot be found with it: pass rows by hand.",
            )
        return cls(text, spans)

    def find(self, needle: str, after: int = 0) -> tuple[int, int] | None:
        """First and one-past-last character of `needle` from character `after` on; None if absent.

        Surrounding white space is not looked for, and where the tokenizer normalises Unicode (NFC)
        the needle is tried in that form too.
        """
        for form in (needle.strip(), unicodedata.normalize("NFC", needle.strip())):
            start = self.text.find(form, after)
            if form and start >= 0:
                return start, start + len(form)
        return None

    def tokens(self, start: int, end: int) -> Int[np.ndarray, " token"]:
        """Indices of the tokens that overlap the characters `start` to `end`."""
        return np.flatnonzero((self.spans[:, 0] < end) & (self.spans[:, 1] > start))


@dataclass(frozen=True)
class _Anchor:
    """A letter that stands before whatever is decoded: its tokens and its text."""

    tokenizer: Any
    ids: list[int]
    text: str

    @classmethod
    def of(cls, tokenizer: Any) -> _Anchor:
        ids = tokenizer.encode("a", add_special_tokens=False)
        return cls(tokenizer, ids, _decode(tokenizer, ids))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids` as it reads after other text."""
        return _decode(self.tokenizer, [*self.ids, *ids])[len(self.text) :]


def _decode(tokenizer: Any, ids: Sequence[int]) -> str:
    return tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)


def special_ids(tokenizer: Any) -> frozenset[int]:
    """Ids of tokens that are not text: declared special ones and everything added beside the vocabulary."""
    added = getattr(tokenizer, "added_tokens_decoder", {})
    return frozenset(tokenizer.all_special_ids) | frozenset(added)
