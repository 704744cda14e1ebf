"""The tables of a comparison on its page."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnostics.errors import DamagedRunError
from diagnostics.report.page.compared import compared_of

COMPARISON = """measure,run,against,kind,value,ci_low,ci_high,n
accuracy,None,,mean,0.5,0.25,0.75,8
accuracy,"b, <i>",,mean,0.625,,,8
accuracy,"b, <i>",None,paired difference,0.125,-0.1,0.35,8
gini,None,,mean,,,,0
"""


def write(folder: Path, comparison: str, differences: str) -> Path:
    (folder / "tables").mkdir()
    (folder / "tables" / "comparison.csv").write_text(comparison)
    (folder / "tables" / "differences.csv").write_text(differences)
    return folder


def test_runs_stand_side_by_side(tmp_path: Path) -> None:
    """A run may be called None, and no row of a measure is not an undefined one."""
    told = compared_of(
        write(tmp_path, COMPARISON, 'setting,None,"b, <i>"\nmodel.path_a,null,x\n'), ["gini", "gone"]
    )
    columns = ["measure", "None", "b, <i>", "b, <i> \N{MINUS SIGN} None"]
    assert list(told.first.columns) == list(told.rest.columns) == columns
    assert told.first.rows == [["gini", "undefined (n = 0)", "–", "–"]]
    assert told.rest.rows == [["accuracy", "0.500 [0.250, 0.750]", "0.625", "+0.125 [-0.100, 0.350]"]]
    assert list(told.settings.columns) == ["setting", "None", "b, <i>"]
    assert told.settings.rows == [["model.path_a", "null", "x"]]
    assert told.kinds == ["paired difference"]


def test_differences_under_a_condition_are_left_to_the_table(tmp_path: Path) -> None:
    comparison = (
        "measure,run,against,kind,condition,value,ci_low,ci_high,n\n"
        "accuracy,a,,mean,,0.5,0.4,0.6,8\naccuracy,b,,mean,,0.5,0.4,0.6,8\n"
        "accuracy,b,a,paired difference,budget=8,0.25,0.1,0.4,8\n"
    )
    told = compared_of(write(tmp_path, comparison, "setting,a,b\n"), None)
    assert told.first.rows == [["accuracy", "0.500 [0.400, 0.600]", "0.500 [0.400, 0.600]", "–"]]
    assert (told.settings.rows, told.settings.n_rows, told.kinds) == ([], 0, [])


def test_a_torn_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(DamagedRunError, match="no table"):
        compared_of(write(tmp_path, 'a,b\n"1,2\n', "setting\n"), None)


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    """A comparison that was killed after its summary."""
    with pytest.raises(DamagedRunError, match="missing"):
        compared_of(tmp_path, None)
