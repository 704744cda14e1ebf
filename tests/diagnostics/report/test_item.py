"""Pictures of one item: steps over seconds, and heat in the right place."""

from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from diagnostics.report.item import (
    AttendedFrames,
    ItemAttention,
    contact_sheet,
    heat_overlay,
    item_attention_figure,
)
from diagnostics.report.style import save_figure, styled

SHARE = np.array([0.1, 0.4, 0.2, 0.3])


def attention(**changes: object) -> ItemAttention:
    given = ItemAttention(
        item_id="case/1",
        question="Which colour?",
        answer="B",
        target="C",
        correct=False,
        unit_share=SHARE,
        slot_seconds=np.array([[0.0, 2.0], [10.0, 12.0], [20.0, 22.0], [30.0, 32.0]]),
        duration=40.0,
        head_low=SHARE * 0.5,
        head_high=SHARE * 1.5,
        control_share=np.full(4, 0.25),
        evidence_windows=[(11.0, 13.0)],
        is_key=np.array([False, True, False, False]),
    )
    return replace(given, **changes)


def frames(count: int = 3, rows: int = 2, cols: int = 3, **changes: object) -> AttendedFrames:
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:40, :60]
    picture = np.stack([4 * x, 6 * y, 2 * (x + y)], axis=-1)
    given = AttendedFrames(
        item_id="case/$1$",
        thumbnails=np.stack([np.roll(picture, 9 * n, axis=1) for n in range(count)]).astype(np.uint8)
        if count
        else np.empty((0, 40, 60, 3), np.uint8),
        heat=[rng.random((rows, cols)) * 0.01 for _ in range(count)],
        shares=np.linspace(0.3, 0.1, count),
        seconds=np.linspace(5, 4000, count),
        evidence=np.arange(count) == 1,
    )
    return replace(given, **changes)


def texts(figure) -> list[str]:
    return [artist.get_text() for artist in figure.findobj(Text)]


def by_gid(figure, gid: str) -> list:
    return figure.findobj(lambda artist: artist.get_gid() == gid)


def drawn(figure) -> np.ndarray:
    with styled():
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        return np.asarray(canvas.buffer_rgba())[..., :3]


def test_steps_are_the_shares_over_the_units_stretches():
    figure = item_attention_figure(attention())
    (pooled,) = by_gid(figure, "attention")
    np.testing.assert_array_equal(pooled.get_data().values, SHARE)
    np.testing.assert_allclose(pooled.get_data().edges, [0, 6, 16, 26, 40])
    (heads,) = by_gid(figure, "heads")
    np.testing.assert_array_equal(heads.get_data().values, SHARE * 1.5)
    np.testing.assert_array_equal(heads.get_data().baseline, SHARE * 0.5)
    np.testing.assert_array_equal(by_gid(figure, "control")[0].get_data().values, np.full(4, 0.25))
    assert by_gid(figure, "uniform")[0].get_ydata()[0] == 0.25
    assert by_gid(figure, "keyframes")[0].get_xdata().tolist() == [10.0]


def test_units_in_another_order_than_time_are_drawn_in_time():
    order = [2, 0, 3, 1]
    figure = item_attention_figure(
        attention(unit_share=SHARE[order], slot_seconds=attention().slot_seconds[order], is_key=None)
    )
    np.testing.assert_array_equal(by_gid(figure, "attention")[0].get_data().values, SHARE)


@pytest.mark.parametrize(("correct", "mark"), [(True, "✓ correct"), (False, "✗ wrong"), (None, "not scored")])
def test_the_verdict_is_in_the_title(correct, mark):
    figure = item_attention_figure(attention(correct=correct, answer=None))
    assert figure.axes[0].get_title(loc="left") == f"Which colour?\nAnswer: none · Target: C · {mark}"


def test_what_is_missing_is_left_out_and_said():
    bare = attention(
        head_low=None, head_high=None, control_share=np.full(4, np.nan), evidence_windows=(), is_key=None
    )
    figure = item_attention_figure(replace(bare, slot_seconds=np.full((4, 2), np.nan), duration=float("nan")))
    assert not by_gid(figure, "control")
    assert not by_gid(figure, "heads")
    caption = by_gid(figure, "caption")[0].get_text()
    assert "4 units have no time" in caption
    assert "No evidence window" in caption


@pytest.mark.parametrize(
    "question",
    [
        "What costs $5 and $x_{2}$? \\frac{1}{2} \\",
        "$\\frac{$ is not mathematics $",
        "<script>alert(1)</script> & <b>bold</b>",
        "W" * 900,
        "two\nlines\ttabs\x00\x1b[0m",
        "word " * 400,
        "",
    ],
)
def test_any_question_is_shown_as_text_within_the_figure(question, tmp_path):
    figure = item_attention_figure(attention(question=question))
    save_figure(figure, tmp_path / "item")
    assert not any(text.get_parse_math() for text in figure.findobj(Text))
    title = figure.axes[0].get_title(loc="left")
    assert title.count("\n") <= 4
    shown = title.rsplit("\n", 1)[0].replace("\n", " ")
    if len(question) < 80 and question.isprintable() and question:
        assert shown == question.strip()
    with styled():
        renderer = FigureCanvasAgg(figure).get_renderer()
        box = figure.axes[0]._left_title.get_window_extent(renderer)
    assert box.x1 <= figure.bbox.width
    assert box.y1 <= figure.bbox.height


def test_hours_of_video_have_clock_ticks():
    long = attention(slot_seconds=attention().slot_seconds * 200, duration=8000.0)
    figure = item_attention_figure(long)
    drawn(figure)
    labels = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert labels[:3] == ["0:00:00", "0:30:00", "1:00:00"]


def test_heat_tints_its_own_patch_and_no_other():
    picture = np.full((50, 70, 3), 128, np.uint8)  # 50 / 3 and 70 / 4 do not divide: rows 0-16, 17-33, 34-49
    heat = np.zeros((3, 4))
    heat[1, 2] = 0.02
    overlay = heat_overlay(picture, heat, 0.02).astype(int)
    cold = overlay[0, 0]
    hot = (overlay != cold).any(axis=-1)
    expected = np.zeros((50, 70), bool)
    expected[17:34, 35:53] = True
    np.testing.assert_array_equal(hot, expected)
    assert overlay[20, 40].sum() > cold.sum() + 200  # bright yellow over grey


def test_more_heat_is_brighter_and_unknown_patches_stay_grey():
    picture = np.full((8, 40, 3), 90, np.uint8)
    overlay = heat_overlay(picture, np.array([[0.1, 0.3, 0.6, 1.0, np.nan]]), 1.0).astype(int)
    red = overlay[4, [4, 12, 20, 28], 0]
    assert (np.diff(red) > 0).all()
    # A quarter of the largest heat lies half way up the scale: the square root.
    quarter = heat_overlay(picture, np.array([[0.25]]), 1.0)[0, 0]
    halfway = np.array(mpl.colormaps["inferno"](0.5)[:3]) * 255
    np.testing.assert_allclose(quarter, 0.425 * halfway + 0.575 * 90, atol=1)
    assert set(overlay[:, 32:].ravel()) == {90}


def test_the_sheet_shows_each_picture_with_its_heat_on_one_scale():
    sheet = frames()
    figure = contact_sheet(sheet)
    largest = max(heat.max() for heat in sheet.heat)
    images = [axes.get_images()[0].get_array() for axes in figure.axes if axes.get_images()]
    raw, overlays = images[:3], images[3:]
    for index in range(3):
        small = raw[index].reshape(20, 12, 30, 12, 3).mean(axis=(1, 3))
        original = sheet.thumbnails[index].reshape(20, 2, 30, 2, 3).mean(axis=(1, 3))
        assert np.abs(small - original).mean() < 3, "the same picture, enlarged six times"
        expected = heat_overlay(np.asarray(raw[index]), sheet.heat[index], largest)
        np.testing.assert_array_equal(overlays[index], expected)
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles[:3] == ["#1   00:05   30.0%", "#2   33:22   20.0%", "#3   1:06:40   10.0%"]
    labels = figure.axes[-1].get_yticklabels()
    assert labels[-1].get_text() == f"{100 * largest:.2g}%"


def test_the_hot_patch_is_hot_in_the_file(tmp_path):
    heat = np.zeros((2, 2))
    heat[1, 0] = 1.0
    flat = np.full((1, 40, 40, 3), 60, np.uint8)
    sheet = AttendedFrames("x", flat, [heat], np.array([1.0]), np.array([0.0]), np.array([False]))
    figure = contact_sheet(sheet)
    pixels = drawn(figure).astype(int)
    overlay = next(axes for axes in figure.axes[2:] if axes.get_images())
    box = overlay.get_window_extent()
    top = pixels.shape[0] - box.y1

    def colour(row: float, col: float) -> np.ndarray:
        return pixels[int(top + row * box.height), int(box.x0 + col * box.width)]

    hot = colour(0.75, 0.25)
    for row, col in [(0.25, 0.25), (0.25, 0.75), (0.75, 0.75)]:
        assert hot.sum() > colour(row, col).sum() + 200


def test_evidence_has_a_border_and_a_word():
    figure = contact_sheet(frames())
    bordered = [axes for axes in figure.axes if axes.get_images() and axes.spines["left"].get_visible()]
    assert len(bordered) == 2
    assert [axes.get_xlabel() for axes in figure.axes].count("evidence") == 1


@pytest.mark.parametrize("count", [1, 2, 4, 5, 8])
def test_any_number_of_frames_fits_without_a_warning(count, tmp_path, recwarn):
    png, pdf = save_figure(contact_sheet(frames(count)), tmp_path / "sheet")
    assert png.stat().st_size > 0
    assert pdf.read_bytes().startswith(b"%PDF")
    assert not recwarn.list


def test_unknown_heat_and_synthetic_frames_are_shown_as_such():
    unknown = frames(2, heat=[np.full((2, 2), np.nan)] * 2, seconds=np.array([np.nan, 1.0]))
    figure = contact_sheet(unknown)
    assert "#1   no time   30.0%" in texts(figure)
    overlay = figure.axes[2].get_images()[0].get_array()
    assert (np.ptp(np.asarray(overlay).astype(int), axis=-1) == 0).all(), "grey"


def test_a_sheet_needs_frames_and_arrays_that_agree():
    with pytest.raises(ValueError, match="0 thumbnails"):
        contact_sheet(frames(0))
    with pytest.raises(ValueError, match=r"3 thumbnails, .* \[2, 3\]"):
        contact_sheet(frames(3, shares=np.array([0.5, 0.5])))
