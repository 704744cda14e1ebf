"""Is the observed model the benchmarked one? A run's answers beside those of a benchmark run.

A capturing run and a benchmark run may differ in engine, kernel, precision or batch. Where both asked an item
with the same prompt (its text, its token ids, the same frames at the same times), their answers should be the
same; where they are not, what was observed is not what was benchmarked. Items whose prompts differ (another
budget, another condition) say nothing about that and are counted apart.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from diagnostics.experiments.context import Context
from diagnostics.store.finished import FinishedRun, find_run, open_finished
from diagnostics.store.records import Record

__all__ = ["agreement_table", "benchmark_run", "join"]

_COLUMNS = ("item", "condition", "same_prompt", "answer", "benchmark_answer", "agree")


def benchmark_run(place: str) -> FinishedRun:
    """The finished run that a place names.

    Raises:
        RunError: there is none, it is not finished, or there are several.
    """
    return open_finished(find_run(place, "benchmark_run"))


def agreement_table(observed: Sequence[Record], benchmarked: Sequence[Record]) -> pd.DataFrame:
    """One row for each finished record of an item that the benchmark run asked too.

    Columns: item; condition (its id); same_prompt (missing where one of the engines does not show its
    prompt, and the frames are the same); the two answers; agree (the same letter, or the same words where
    there are no options).
    """
    known = {record.item_id: record for record in benchmarked if record.error is None}
    rows = []
    for record in observed:
        other = known.get(record.item_id)
        if other is None or record.error is not None or record.raw is None:
            continue
        lettered = record.target is not None or record.answer is not None or other.answer is not None
        said = [one.answer if lettered else one.raw for one in (record, other)]
        rows.append(
            (record.item_id, record.condition_id, _same_prompt(record, other), *said, said[0] == said[1])
        )
    return pd.DataFrame(rows, columns=list(_COLUMNS), dtype=object)


def _same_prompt(one: Record, other: Record) -> bool | None:
    if one.slots != other.slots or one.frame_size != other.frame_size:
        return False
    if one.prompt_sha256 is None or other.prompt_sha256 is None:
        return None
    return one.prompt_sha256 == other.prompt_sha256


def join(context: Context, records: Sequence[Record], benchmark: FinishedRun) -> str:
    """Write the table, keep the rates in the manifest, and give the line for the screen."""
    table = agreement_table(records, benchmark.records)
    same = table[table["same_prompt"] == True]  # noqa: E712 - missing is neither
    untold = table[table["same_prompt"].isna()]
    rate, rate_untold = (None if some.empty else float(some["agree"].mean()) for some in (same, untold))
    context.folder.write_table("benchmark_agreement", table)
    context.folder.note(
        "benchmark_agreement",
        {
            "run": str(benchmark.folder.resolve()),
            "config_hash": benchmark.manifest.config_hash,
            "answers": len(table),
            "same_prompt": len(same),
            "agreement": rate,
            "prompt_not_told": len(untold),
            "agreement_prompt_not_told": rate_untold,
        },
    )
    told = f"{len(same)} of {len(table)} answers have the prompt of {benchmark.folder}"
    if rate is None and rate_untold is not None:
        return f"{told}; of {len(untold)} whose prompt one engine does not tell, {rate_untold:.1%} agree."
    if rate is None:
        return f"{told}: nothing can be said of whether the observed model is the benchmarked one."
    return f"{told}; {rate:.1%} of them agree (tables/benchmark_agreement.csv)."
