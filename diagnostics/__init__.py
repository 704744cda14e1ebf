"""Mechanistic diagnostics for video multimodal large language models: the application.

`python -m diagnostics` lists what there is. `hooks` and `probes`, beside it, are useful alone.
`diagnostics.open_run` reads what a run left.
"""

from __future__ import annotations

from typing import Any

__all__ = ["open_run"]


def __getattr__(name: str) -> Any:
    """`open_run`, imported when it is asked for: the command line starts without pandas."""
    if name == "open_run":
        from diagnostics.store.opened import open_run

        return open_run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
