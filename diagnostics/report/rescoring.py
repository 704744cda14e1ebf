"""Answers that changed when a run was scored again, for the screen."""

from __future__ import annotations

import pandas as pd
from rich.table import Table
from rich.text import Text

from diagnostics.report.style import plain_text

__all__ = ["changes_table"]

_SHOWN = 20
"""Rows on the screen; the file has all."""
_REPLY = 60
"""Characters of a reply."""


def changes_table(changed: pd.DataFrame) -> Table:
    """Item, old letter and rule, new letter and rule, right letter, and how the reply begins.

    Args:
        changed: with the columns item, old, old_rule, new, new_rule, target, reply.
    """
    more = f", the first {_SHOWN} of {len(changed)}" if len(changed) > _SHOWN else ""
    table = Table(title=Text(f"Answers that changed{more}"), title_justify="left")
    for heading in ("item", "before", "now", "right", "reply"):
        table.add_column(heading, overflow="fold")
    for row in changed.head(_SHOWN).to_dict("records"):
        table.add_row(
            Text(plain_text(str(row["item"]))),
            Text(_told(row["old"], row["old_rule"])),
            Text(_told(row["new"], row["new_rule"])),
            Text(plain_text(str(row["target"]))),
            Text(plain_text(str(row["reply"]))[:_REPLY]),
        )
    return table


def _told(letter: object, rule: object) -> str:
    return f"{letter if isinstance(letter, str) else 'none'} ({plain_text(str(rule))})"
