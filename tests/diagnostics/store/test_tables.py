"""Tables and summaries: tidy, strict, and no cell becomes markup."""

import io
import json
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest

from diagnostics.errors import DamagedRunError
from diagnostics.store import Failure, Metric, Row, Summary, read_summary
from diagnostics.store.summary import write_summary
from diagnostics.store.tables import to_latex, to_markdown, write_table

NASTY = [
    "a | b", "<script>alert(1)</script>", "**bold** _it_", "[x](javascript:1)", "`code`",
    "100 % of $x_1$ & #2",
    "\\input{/etc/passwd}", "two\nlines", "~ ^ { }", "![](http://x/y.png)", "&lt;", "",
]  # fmt: skip


def test_numbers_are_rounded_for_people_and_whole_for_programs(tmp_path):
    table = pd.DataFrame(
        {
            "measure": ["unit_fraction_50", "gini"],
            "value": [1 / 3, np.nan],
            "n": [12, 0],
            "ok": [True, np.nan],
        }
    )
    write_table(tmp_path, "t", table)
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "tables" / "t.csv"), table, check_dtype=False)
    assert (tmp_path / "tables" / "t.md").read_text().splitlines() == [
        "| measure | value | n | ok |",
        "| --- | ---: | ---: | --- |",
        "| unit_fraction_50 | 0.3333 | 12 | True |",
        "| gini | – | 0 | – |",
    ]
    tex = (tmp_path / "tables" / "t.tex").read_text()
    assert r"unit\_fraction\_50 & 0.3333 & 12 & True \\" in tex
    assert r"\toprule" in tex


def test_text_in_markdown_cells_stays_text():
    table = pd.DataFrame({"a | b": NASTY, "n": range(len(NASTY))})
    lines = to_markdown(table).splitlines()
    assert len(lines) == 2 + len(NASTY)
    for line in lines:
        bare = line.replace("\\\\", "").replace("\\|", "")
        assert bare.count("|") == 3, line
    text = "\n".join(lines)
    for markup in ("<", ">", "`", "[", "*", "$", "&", "#"):
        assert text.replace("\\\\", "").replace(f"\\{markup}", "").count(markup) == 0, markup


def test_text_in_latex_cells_stays_text():
    tex = to_latex(pd.DataFrame({"a_b & c": NASTY}))
    assert r"\input" not in tex
    assert r"\textbackslash input\{/etc/passwd\}" in tex
    assert r"100 \% of \$x\_1\$ \& \#2" in tex
    assert r"a\_b \& c" in tex
    assert "two lines" in tex


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs LaTeX")
def test_latex_compiles(tmp_path):
    body = to_latex(pd.DataFrame({"a_b": NASTY}))
    page = rf"\documentclass{{article}}\usepackage{{booktabs}}\begin{{document}}{body}\end{{document}}"
    (tmp_path / "t.tex").write_text(page)
    subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"], cwd=tmp_path, check=True
    )


@pytest.mark.parametrize("name", ["../x", "a/b", "", "a.b", "x\n"])
def test_a_table_cannot_leave_its_folder(tmp_path, name):
    with pytest.raises(ValueError, match="name"):
        write_table(tmp_path, name, pd.DataFrame({"a": [1]}))


def test_an_empty_table_has_its_head(tmp_path):
    write_table(tmp_path, "t", pd.DataFrame(columns=["task", "value"]))
    assert (tmp_path / "tables" / "t.md").read_text() == "| task | value |\n| --- | --- |\n"
    assert pd.read_csv(io.StringIO((tmp_path / "tables" / "t.csv").read_text())).empty


def test_the_summary_comes_back_and_has_no_nan(tmp_path, make_record):
    rows = [
        Row(measure="gini", value=0.5, ci_low=0.4, ci_high=0.6, n=3, task="polyps", condition={"budget": 64}),
        Row(measure="gini", value=float("nan"), n=0),
    ]
    metrics = {"gini": Metric(np.float64(0.5), np.nan, np.inf, 3)}
    write_summary(tmp_path, Summary.of("e", [make_record(error=Failure("E", "m"))], metrics, rows))
    text = (tmp_path / "summary.json").read_text()
    values = json.loads(text, parse_constant=lambda name: pytest.fail(name))
    assert set(values) >= {"schema", "experiment", "n_items", "metrics", "rows"}
    assert values["rows"][1]["value"] is None
    read = read_summary(tmp_path)
    assert read.all_failed
    assert read.metrics["gini"] == Metric(0.5, None, None, 3)
    assert list(read.table().columns) == ["budget", "task", "measure", "value", "ci_low", "ci_high", "n"]
    assert read.table().iloc[0].to_dict() == {
        "budget": 64, "task": "polyps", "measure": "gini", "value": 0.5, "ci_low": 0.4, "ci_high": 0.6,
        "n": 3,
    }  # fmt: skip
    (tmp_path / "summary.json").write_text(text[:40])
    with pytest.raises(DamagedRunError, match="no summary"):
        read_summary(tmp_path)


def test_a_run_with_a_finished_pair_did_not_all_fail(make_record):
    assert not Summary.of("e", [make_record("a"), make_record("b", error=Failure("E", "m"))], {}).all_failed
    assert Summary.of("e", [], {}).all_failed
