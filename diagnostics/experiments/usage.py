"""What a run asked of an endpoint, all its attempts and shards together, and what that cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from diagnostics.store.manifest import Attempt
from diagnostics.store.summary import Metric

__all__ = ["usage_metrics", "usage_table"]

_COUNTS = ("requests", "answered", "failed", "without_usage")


def usage_table(attempts: Sequence[Attempt]) -> pd.DataFrame:
    """One row a count: calls, replies, failures, replies without token counts, tokens by kind, cost.

    Columns: what; total. Empty where no attempt asked an endpoint. The cost is missing where any attempt that
    was answered has none: prices were not given (`backend.input_price`).
    """
    told: list[Mapping[str, Any]] = [
        attempt.checks["endpoint"] for attempt in attempts if "endpoint" in attempt.checks
    ]
    if not told:
        return pd.DataFrame(columns=["what", "total"])
    tokens: Counter[str] = Counter()
    for one in told:
        tokens.update(one["tokens"])
    costs = [one["cost"] for one in told if one["answered"]]
    rows = [
        *((name, sum(one[name] for one in told)) for name in _COUNTS),
        *((f"{kind}_tokens", count) for kind, count in sorted(tokens.items())),
        ("cost", None if None in costs else sum(costs)),
    ]
    return pd.DataFrame(rows, columns=["what", "total"])


def usage_metrics(usage: pd.DataFrame) -> dict[str, Metric]:
    """Tokens and cost for the summary: totals, `n` being the replies that they are of."""
    totals = dict(zip(usage["what"], usage["total"], strict=True))
    replies = int(totals.get("answered") or 0)
    shown = {"prompt_tokens": "endpoint_prompt_tokens", "reply_tokens": "endpoint_reply_tokens"}
    shown["cost"] = "endpoint_cost"
    return {
        name: Metric(float(totals[what]), None, None, replies)
        for what, name in shown.items()
        if pd.notna(totals.get(what))
    }
