"""Quotas: which candidates stay where there are more than are wanted, the answers as even as they allow.

How often each answer of a task can be taken is a flow: from the answer to the procedures that have a
candidate with it, and through a procedure at most `per_procedure` times. What can be added to such a
flow never costs what is in it, so that raising all answers together, and then those that still can be
raised, gives the most even counts and loses no question that could be kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from diagnostics.data.build.audit import Audit
from diagnostics.data.build.candidates import Candidate
from diagnostics.data.build.filters import judge
from diagnostics.data.build.findings import stream
from diagnostics.data.build.reasons import OverQuotaError
from diagnostics.data.build.settings import Config

__all__ = ["thin"]


def thin(candidates: Sequence[Candidate], config: Config, audit: Audit) -> list[Candidate]:
    """At most `tasks_per_procedure` tasks on a procedure, taking turns; of each task at most
    `per_procedure` and `per_task` questions, the answers as even as they allow.

    With `even_answers` no answer of a task stays more often than the rarest. Where the procedures do not
    suffice for one of each, every answer that can stays once. Among the candidates that come to such counts
    a seeded draw decides.
    """
    turns = _turns(candidates, config)
    kept: set[str] = set()
    for task in dict.fromkeys(candidate.task for candidate in candidates):
        pool = [c for c in candidates if c.task == task and task in turns[c.finding.procedure.name]]
        kept |= _evenly(pool, task, config)

    def check(candidate: Candidate) -> None:
        if candidate.task not in turns[candidate.finding.procedure.name]:
            raise OverQuotaError("Other tasks had their turn.", remedy="Raise tasks_per_procedure.")
        if candidate.id not in kept:
            raise OverQuotaError(
                "There are enough of these.",
                remedy="Raise per_task or per_procedure, or do without even_answers.",
            )

    return judge("quota", candidates, check, audit)


def _turns(candidates: Iterable[Candidate], config: Config) -> dict[str, set[str]]:
    """The tasks asked of each procedure, by its name: of those it has candidates of, the n-th procedure
    gets the n-th, counted round, and those after it."""
    able: dict[str, set[str]] = defaultdict(set)
    for candidate in candidates:
        able[candidate.finding.procedure.name].add(candidate.task)
    if config.tasks_per_procedure is None:
        return able
    turns = {}
    for number, name in enumerate(sorted(able)):
        order = [task for task in config.tasks if task in able[name]]
        first = number % len(order)
        turns[name] = set((order[first:] + order[:first])[: config.tasks_per_procedure])
    return turns


def _evenly(pool: Sequence[Candidate], task: str, config: Config) -> set[str]:
    """Ids of the candidates of one task that stay."""
    if config.per_task is None and config.per_procedure is None and not config.evens(task):
        return {candidate.id for candidate in pool}
    unique = {candidate.id: candidate for candidate in pool}  # one that was drawn twice counts once
    if not unique:
        return set()
    supply = _Supply(list(unique.values()), config)
    return supply.drawn(_even_counts(supply, config) if config.evens(task) else _fair_counts(supply, config))


class _Supply:
    """What the procedures can give: so many candidates of each answer, so many on each procedure.

    Args:
        pool: candidates of one task.
    """

    def __init__(self, pool: Sequence[Candidate], config: Config) -> None:
        self._pool, self._seed, self._each = pool, config.seed, config.per_procedure or len(pool)
        self.answers = sorted({candidate.answer for candidate in pool})
        procedures = sorted({candidate.finding.procedure.name for candidate in pool})
        n = len(self.answers)
        answer = {name: place for place, name in enumerate(self.answers)}
        procedure = {name: place for place, name in enumerate(procedures)}
        self._answer = np.array([answer[candidate.answer] for candidate in pool])
        self._procedure = np.array([procedure[candidate.finding.procedure.name] for candidate in pool])
        self.most = np.bincount(self._answer, minlength=n)
        # Nodes: 0 the source, then the answers, the procedures, the sink.
        pairs, counts = np.unique(np.stack([self._answer, self._procedure]), axis=1, return_counts=True)
        self._sink = 1 + n + len(procedures)
        self._tails = np.concatenate([np.zeros(n), 1 + pairs[0], np.arange(1 + n, self._sink)]).astype(int)
        self._heads = np.concatenate(
            [np.arange(1, 1 + n), 1 + n + pairs[1], np.full(len(procedures), self._sink)]
        )
        self._inner = np.concatenate([counts, np.full(len(procedures), self._each)])

    def can(self, wanted: Sequence[int]) -> bool:
        """Whether so many of each answer can be taken at once."""
        capacities = np.concatenate([wanted, self._inner]).astype(np.int32)
        nodes = self._sink + 1
        graph = csr_array((capacities, (self._tails, self._heads)), shape=(nodes, nodes))
        return bool(maximum_flow(graph, 0, self._sink).flow_value == sum(wanted))

    def drawn(self, wanted: Sequence[int]) -> set[str]:
        """Ids of candidates with the wanted counts of answers: those whose drawn ranks have the least sum.

        A flow that is merely possible would do for the counts, but not for the reader: it gives an answer
        the procedures that come first, and so the options that stand beside it.
        """
        columns, ones = np.arange(len(self._pool)), np.ones(len(self._pool))
        ranks = [stream(self._seed, "quota", candidate.id).random() for candidate in self._pool]
        found = milp(
            np.array(ranks),
            constraints=[
                LinearConstraint(csr_array((ones, (self._answer, columns))), wanted, wanted),
                LinearConstraint(csr_array((ones, (self._procedure, columns))), 0, self._each),
            ],
            bounds=Bounds(0, 1),
            integrality=ones.astype(int),
        )
        if found.x is None:
            raise AssertionError(f"counts that a flow can reach were not reached: {found.message}")
        return {c.id for c, taken in zip(self._pool, found.x, strict=True) if taken > 0.5}


def _even_counts(supply: _Supply, config: Config) -> list[int]:
    """The highest count that all answers can have at once; where it is none, once each as far as they can."""
    n = len(supply.answers)
    most = int(supply.most.min())
    if config.per_task is not None:
        most = min(most, config.per_task // n)
    level = _highest(supply, [0] * n, range(n), most)
    return [level] * n if level else _raised(supply, [0] * n, range(n), config)[0]


def _fair_counts(supply: _Supply, config: Config) -> list[int]:
    """As many as can be taken in all, so that no answer could have more but at the cost of a rarer one."""
    counts, active = [0] * len(supply.answers), list(range(len(supply.answers)))
    while active:
        most = int(supply.most[active].max())
        if config.per_task is not None:
            most = min(most, counts[active[0]] + (config.per_task - sum(counts)) // len(active))
        level = _highest(supply, counts, active, most)
        counts = [level if place in active else count for place, count in enumerate(counts)]
        counts, active = _raised(supply, counts, active, config)
    return counts


def _highest(supply: _Supply, counts: Sequence[int], active: Sequence[int], most: int) -> int:
    """The highest common count, at most `most`, of the active answers beside the others' counts."""
    low, high = counts[active[0]], max(most, counts[active[0]])
    while low < high:
        middle = (low + high + 1) // 2
        wanted = [middle if place in active else count for place, count in enumerate(counts)]
        low, high = (middle, high) if supply.can(wanted) else (low, middle - 1)
    return low


def _raised(
    supply: _Supply, counts: Sequence[int], active: Sequence[int], config: Config
) -> tuple[list[int], list[int]]:
    """The counts, each active one that can be raised by one raised by one; and which these are."""
    raised, which = list(counts), []
    for place in active:
        if config.per_task is not None and sum(raised) >= config.per_task:
            break
        raised[place] += 1
        if supply.can(raised):
            which.append(place)
        else:
            raised[place] -= 1
    return raised, which
