"""Plain text, measured wrapping, and files whose bytes repeat."""

import subprocess
import sys
import textwrap
import zlib

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from diagnostics.report.style import clock, plain_text, save_figure, styled, wrapped


def hello() -> Figure:
    with styled():
        figure = Figure(figsize=(2, 1))
        figure.add_subplot().set_title("Costs $5 and $x_2")
    return figure


def drawn_inches(text: str, points: float) -> float:
    with styled():
        figure = Figure(dpi=200)
        canvas = FigureCanvasAgg(figure)
        label = figure.text(0, 0, text, size=points)
        return label.get_window_extent(canvas.get_renderer()).width / 200


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("a\n\tb\u00a0c", "a b c"),
        ("x\x00\x1b[31m\u202ey", "x[31my"),
        ("  ", "(empty)"),
        ("$\\frac{1}{2}$ <b>", "$\\frac{1}{2}$ <b>"),
    ],
)
def test_plain_text_is_one_visible_line(text, plain):
    assert plain_text(text) == plain


@settings(max_examples=40, deadline=None)
@given(st.text(st.characters(codec="latin-1"), max_size=300), st.floats(0.8, 4))
def test_wrapping_loses_nothing_and_is_no_wider_than_asked(text, inches):
    lines = wrapped(text, inches, 8.0).split("\n")
    assert "".join("".join(lines).split()) == "".join(plain_text(text).split())
    # Wider than asked by hinting at most: outlines are measured, pixels are drawn.
    assert max(drawn_inches(line, 8.0) for line in lines) < inches + 0.1


def test_a_cut_text_ends_in_an_ellipsis_within_the_width():
    lines = wrapped("W" * 500 + " end", 3.0, 8.0, max_lines=2).split("\n")
    assert len(lines) == 2
    assert lines[1].endswith(" …")
    assert max(drawn_inches(line, 8.0) for line in lines) <= 3.1
    assert wrapped("short", 3.0, 8.0, max_lines=1) == "short"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "00:00"),
        (59.99, "00:59"),
        (3599, "59:59"),
        (3600, "1:00:00"),
        (float("nan"), "no time"),
        (-1, "no time"),
    ],
)
def test_clock(seconds, shown):
    assert clock(seconds) == shown
    assert clock(61, full=True) == "0:01:01"


def test_both_files_are_written_whole_at_200_dpi_and_repeat_their_bytes(tmp_path):
    png, pdf = save_figure(hello(), tmp_path / "new" / "run.v1")
    assert (png.name, pdf.name) == ("run.v1.png", "run.v1.pdf")
    assert sorted(path.name for path in png.parent.iterdir()) == ["run.v1.pdf", "run.v1.png"]
    assert Image.open(png).size == (400, 200)
    again = save_figure(hello(), tmp_path / "again")
    assert [path.read_bytes() for path in again] == [png.read_bytes(), pdf.read_bytes()]


def test_another_process_writes_the_same_bytes(tmp_path):
    script = f"""
    import sys; sys.path.insert(0, {str(__file__).rsplit("/", 1)[0]!r})
    from test_style import hello, save_figure
    save_figure(hello(), {str(tmp_path / "other")!r})
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, env={"PYTHONHASHSEED": "7"})
    for path in save_figure(hello(), tmp_path / "own"):
        assert path.read_bytes() == (tmp_path / f"other{path.suffix}").read_bytes()


def test_the_pdf_holds_text_in_truetype_and_no_date(tmp_path):
    content = save_figure(hello(), tmp_path / "figure")[1].read_bytes()
    assert b"/FontFile2" in content  # a TrueType font (type 42), not outlines
    assert b"/Subtype /Type3" not in content
    assert b"Date" not in content
    streams = [part.split(b"endstream")[0] for part in content.split(b"stream\n")[1:]]
    texts = b"".join(zlib.decompress(part) for part in streams if part[:1] == b"\x78")
    assert b"Tj" in texts or b"TJ" in texts


def test_a_persons_own_settings_neither_change_the_figure_nor_are_changed(tmp_path):
    plain = save_figure(hello(), tmp_path / "plain")[0].read_bytes()
    with mpl.rc_context({"axes.titlesize": 30, "savefig.dpi": 50, "text.parse_math": True}):
        assert save_figure(hello(), tmp_path / "own")[0].read_bytes() == plain
        assert mpl.rcParams["axes.titlesize"] == 30


def test_drawing_imports_neither_torch_nor_pyplot():
    script = """
    import sys
    import diagnostics.report.compare_attention_drift, diagnostics.report.item_pictures
    assert not {"torch", "transformers", "matplotlib.pyplot"} & set(sys.modules), "imported"
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True)


def test_bytes_differ_for_another_figure(tmp_path):
    with styled():
        figure = Figure(figsize=(2, 1))
        figure.add_subplot().plot(np.arange(3))
    assert (
        save_figure(figure, tmp_path / "a")[0].read_bytes()
        != save_figure(hello(), tmp_path / "b")[0].read_bytes()
    )
