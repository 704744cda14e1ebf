import pytest

from diagnostics.experiments.usage import usage_metrics, usage_table
from diagnostics.store.manifest import Attempt, Machine


def attempt(shard: int = 0, **endpoint) -> Attempt:
    told = {"requests": 5, "answered": 4, "failed": 1, "without_usage": 0, "cost": 0.5}
    told |= {"tokens": {"prompt": 1000, "reply": 10, "cached": 3, "reasoning": 0}} | endpoint
    return Attempt(
        shard=shard, n_shards=2, attempt=1, command=[], pid=1, started="2026-01-01",
        machine=Machine(host="h", platform="p", python="3", cpus=1, gpus=[], scheduler={}), versions={},
        checks={"endpoint": told},
    )  # fmt: skip


def test_attempts_and_shards_are_added_up():
    usage = usage_table([attempt(), attempt(1, tokens={"prompt": 500, "reply": 7}, cost=0.25, answered=2)])
    totals = dict(zip(usage["what"], usage["total"], strict=True))
    assert totals["requests"] == 10
    assert totals["prompt_tokens"] == 1500
    assert totals["reply_tokens"] == 17
    assert totals["cached_tokens"] == 3
    assert totals["cost"] == 0.75
    metrics = usage_metrics(usage)
    assert metrics["endpoint_cost"].mean == 0.75
    assert metrics["endpoint_prompt_tokens"].mean == 1500
    assert {metric.n for metric in metrics.values()} == {6}


@pytest.mark.parametrize("answered", [3, 0])
def test_a_cost_is_told_only_where_every_answered_attempt_has_one(answered):
    usage = usage_table([attempt(), attempt(1, cost=None, answered=answered)])
    assert ("endpoint_cost" in usage_metrics(usage)) == (answered == 0)


def test_runs_without_an_endpoint_have_no_usage():
    plain = attempt()
    plain.checks.clear()
    usage = usage_table([plain])
    assert usage.empty
    assert usage_metrics(usage) == {}
