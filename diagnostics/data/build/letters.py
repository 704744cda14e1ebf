"""Shuffled options: in each task every letter is right equally often, within one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from diagnostics.data.build.audit import Audit
from diagnostics.data.build.candidates import Candidate
from diagnostics.data.build.findings import stream

__all__ = ["shuffle"]


def shuffle(candidates: Sequence[Candidate], seed: int, audit: Audit) -> list[Candidate]:
    """The candidates with their options in final order.

    Which letters are right once more than the others, which item gets which letter and the order of
    the wrong options are drawn; none of them depends on the answer.
    """
    groups: dict[tuple[str, int], list[Candidate]] = {}
    for candidate in candidates:
        groups.setdefault((candidate.task, 1 + len(candidate.wrong)), []).append(candidate)
    order: dict[str, tuple[str, ...]] = {}
    for (task, size), group in groups.items():
        audit.count("letters", len(group), task)
        random = stream(seed, "letters", task, size)
        letters = random.permutation(size)
        places = random.permutation([letters[number % size] for number in range(len(group))])
        for candidate, place in zip(group, places, strict=True):
            options = [candidate.wrong[i] for i in random.permutation(size - 1)]
            options.insert(int(place), candidate.answer)
            order[candidate.id] = tuple(options)
    return [replace(candidate, options=order[candidate.id]) for candidate in candidates]
