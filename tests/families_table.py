"""The table of docs/families.md: what each family has shown in tests/hooks/test_every_family.py.

    FAMILIES_JSON=shown.json python -m pytest tests/hooks/test_every_family.py
    python tests/families_table.py shown.json

`make families-table` does both. The suite fails where the page says something else.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["BEGIN", "COLUMNS", "END", "PAGE", "render", "write"]

PAGE = Path(__file__).resolve().parents[1] / "docs" / "families.md"
BEGIN = "<!-- what was shown: written by make families-table -->"
END = "<!-- end of what was shown -->"
COLUMNS = ("accuracy", "capture", "knockout", "heads", "residual", "patching", "lens", "audio")


def render(shown: Mapping[str, Mapping[str, str]]) -> str:
    """One row a model type; what was not shown is `no`."""
    lines = [
        "| model type | " + " | ".join(COLUMNS) + " |",
        "|---|" + "---|" * len(COLUMNS),
    ]
    for name in sorted(shown):
        unknown = set(shown[name]) - set(COLUMNS)
        if unknown:
            raise ValueError(f"{name} has shown {sorted(unknown)}, for which the table has no column")
        cells = [shown[name].get(column, "no") for column in COLUMNS]
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def write(results: Path) -> None:
    """Put the table of one run between the page's two marks."""
    found = json.loads(results.read_text())
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{render(found['shown'])}\n\n{END}{after}")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
