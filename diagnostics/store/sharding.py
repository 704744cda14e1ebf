"""Cutting work by video, and checking that the pieces make the whole."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from diagnostics.errors import IncompleteRunError
from diagnostics.store.canonical import Pair
from diagnostics.store.records import Record, latest

__all__ = ["MergeCheck", "merge_check", "shard_of"]


def shard_of(video_id: str, n_shards: int) -> int:
    """The shard, from 0 to `n_shards` - 1, that measures this video.

    All items of a video share a shard, so that it is decoded once. A sha256 of the id decides, which
    unlike Python's `hash` is the same in every process and on every machine.

    Raises:
        ValueError: `n_shards` is below 1.
    """
    if n_shards < 1:
        raise ValueError(f"n_shards is {n_shards}; there is at least one shard")
    digest = hashlib.sha256(json.dumps(video_id).encode("ascii")).digest()
    return int.from_bytes(digest[:8], "big") % n_shards


@dataclass(frozen=True, slots=True)
class MergeCheck:
    """How the records of a run compare with the pairs it was to measure, each sorted.

    Attributes:
        missing: expected, and no record says anything of them.
        failed: expected, and the last record holds an error.
        duplicate: finished more than once in the same attempt, so two processes did the same work.
        unexpected: recorded, and not expected.
    """

    missing: tuple[Pair, ...]
    failed: tuple[Pair, ...]
    duplicate: tuple[Pair, ...]
    unexpected: tuple[Pair, ...]

    @property
    def whole(self) -> bool:
        """Every expected pair has its record (finished or failed), once, and there is no other."""
        return not (self.missing or self.duplicate or self.unexpected)

    def require_whole(self) -> None:
        """Do nothing when `whole`.

        Raises:
            IncompleteRunError: says how many pairs are missing, duplicate or unexpected, and names some.
        """
        if self.whole:
            return
        kinds = {"missing": self.missing, "recorded twice": self.duplicate, "unexpected": self.unexpected}
        told = [f"{len(pairs)} {kind} (such as {pairs[0]})" for kind, pairs in kinds.items() if pairs]
        raise IncompleteRunError(
            f"The records are not those of the whole run: {', '.join(told)}.",
            remedy="Run the same command again to measure what is missing; pairs that are unexpected "
            "or recorded twice come from another data set or another cut into shards.",
        )


def merge_check(records: Iterable[Record], expected: Iterable[Pair]) -> MergeCheck:
    """Compare all records of a run, earlier attempts too (`all_records`), with the expected pairs."""
    records, wanted = list(records), set(expected)
    seen = latest(records)
    done = Counter((record.pair, record.attempt) for record in records if record.error is None)
    return MergeCheck(
        missing=tuple(sorted(wanted - seen.keys())),
        failed=tuple(sorted(pair for pair in wanted & seen.keys() if seen[pair].error is not None)),
        duplicate=tuple(sorted({pair for (pair, _), count in done.items() if count > 1})),
        unexpected=tuple(sorted(seen.keys() - wanted)),
    )
