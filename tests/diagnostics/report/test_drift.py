"""The figures of runs: what is drawn equals what was given."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from diagnostics.errors import RunError
from diagnostics.report.curves import UNDEFINED, band, gather
from diagnostics.report.drift import save_figure, time_figure, two_panel_figure
from diagnostics.report.drift_comparison import comparison_figure, similarity_claims
from diagnostics.report.style import MAX_RUNS, styled
from diagnostics.store import Metric


def by_gid(figure: Figure, gid: str) -> list:
    return figure.findobj(lambda artist: artist.get_gid() == gid)


def line(figure: Figure, gid: str) -> tuple[np.ndarray, np.ndarray]:
    (artist,) = by_gid(figure, gid)
    return artist.get_xdata(), artist.get_ydata()


def texts(figure: Figure) -> list[str]:
    return [artist.get_text() for artist in figure.findobj(Text)]


def labels_out_of_view(axes: Axes) -> list[Text]:
    """Tick labels that matplotlib holds ready beyond the axis's ends and does not draw."""
    hidden = []
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        hidden += [tick.label1 for tick in axis.get_major_ticks() if not low <= tick.get_loc() <= high]
    return hidden


def overlapping(figure: Figure) -> list[tuple[str, str]]:
    """Pairs of texts whose boxes overlap, and texts that leave the figure."""
    with styled():
        renderer = FigureCanvasAgg(figure).get_renderer()
        figure.draw_without_rendering()
        hidden = {label for axes in figure.axes for label in labels_out_of_view(axes)}
        every = [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
        shown = [text for text in every if text not in hidden]
        boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in shown]
    width, height = figure.bbox.size
    outside = [
        (text, "the figure's edge")
        for text, box in boxes
        if box.x0 < -1 or box.y0 < -1 or box.x1 > width + 1 or box.y1 > height + 1
    ]
    crossing = []
    for position, (text, box) in enumerate(boxes):
        for other, second in boxes[position + 1 :]:
            depth_x = min(box.x1, second.x1) - max(box.x0, second.x0)
            depth_y = min(box.y1, second.y1) - max(box.y0, second.y0)
            if min(depth_x, depth_y) > 2:
                crossing.append((text, other))
    return outside + crossing


def test_the_left_panel_draws_mean_band_diagonal_and_control(make_run):
    run = make_run()
    figure = two_panel_figure(run)
    x, y = line(figure, "cumulative-0")
    mean, low, high = band(run.cumulative, run.video_ids, "mean")
    np.testing.assert_array_equal(x, run.unit_grid)
    np.testing.assert_array_equal(y, mean)
    np.testing.assert_allclose(mean, run.cumulative.mean(axis=0))
    (shade,) = by_gid(figure, "cumulative-band-0")
    drawn = shade.get_paths()[0].vertices
    assert {tuple(np.round(p, 9)) for p in drawn} >= {
        tuple(np.round(p, 9)) for p in [*zip(x, low, strict=True), *zip(x, high, strict=True)]
    }
    np.testing.assert_allclose(line(figure, "control-0")[1], run.unit_grid, atol=1e-12)
    np.testing.assert_array_equal(line(figure, "uniform"), [[0, 1], [0, 1]])


def test_markers_and_words_are_the_runs_numbers(make_run, metrics):
    figure = two_panel_figure(make_run())
    for percent in (50, 80, 90):
        x, y = line(figure, f"reached-{percent}")
        assert (x[0], y[0]) == (metrics[f"unit_fraction_{percent}"].mean, percent / 100)
    told = texts(figure)
    assert {"50% in 30.1% of units", "80% in 61.2% of units", "90% in 76.7% of units"} <= set(told)
    assert "\N{MINUS SIGN}0.021" in told
    assert any("5 items of 5 videos, 8 units each" in text for text in told)


def test_the_right_panel_draws_the_running_mean_and_its_references(make_run, metrics):
    run = replace(make_run(), preference_null=(-0.004, 0.005))
    figure = two_panel_figure(run, "items")
    x, y = line(figure, "redundancy-0")
    np.testing.assert_array_equal(x, run.patch_grid)
    np.testing.assert_allclose(y, run.redundancy.mean(axis=0))
    for name in ("patch_similarity", "unit_similarity", "unit_similarity_between"):
        assert set(line(figure, f"{name}-0")[1]) == {metrics[name].mean}
    (null,) = by_gid(figure, "null-0")
    assert (null.get_x(), null.get_x() + null.get_width()) == pytest.approx((-0.004, 0.005))
    assert line(figure, "preference-0")[0][0] == metrics["redundancy_preference"].mean


def test_the_time_figure_draws_attention_and_evidence(make_run):
    run = make_run()
    figure = time_figure([run])
    (steps,) = by_gid(figure, "time-0")
    np.testing.assert_allclose(steps.get_data().values, run.time_attention.mean(axis=0))
    np.testing.assert_allclose(steps.get_data().edges, np.linspace(0, 1, 51))
    (evidence,) = by_gid(figure, "evidence")
    np.testing.assert_allclose(evidence.get_data().values, run.evidence.mean(axis=0))
    assert evidence.get_data().values.max() > 0


def test_runs_with_other_evidence_get_a_line_each_and_none_is_said(make_run):
    other = make_run("other", seeds=[7, 7])
    assert len(by_gid(time_figure([make_run(), other]), "evidence-1")) == 1
    nothing = time_figure([make_run(evidence=False)])
    assert len(nothing.axes) == 1
    assert any("No evidence" in text for text in texts(nothing))


def test_bands_over_time_give_way_to_many_lines(make_run):
    runs = [make_run(f"run {n}") for n in range(4)]
    assert by_gid(time_figure(runs[:3]), "time-band-2")
    assert not by_gid(time_figure(runs), "time-band-2")


def test_undefined_is_said_and_not_drawn(make_run, make_item):
    bare = gather("bare", [replace(make_item(0), redundancy=np.full(100, np.nan))], {})
    bare = replace(bare, control=np.full((1, 101), np.nan))
    for run in (bare, gather("empty", [], {})):
        figure = two_panel_figure(run)
        assert not by_gid(figure, "control-0")
        assert not by_gid(figure, "reached-90")
        told = texts(figure)
        assert told.count("90% undefined (n=0)") == 1
        assert told.count("undefined (n=0)") == 1
        assert "undefined" in told
    figure = comparison_figure([bare, gather("empty", [], {})])
    told = texts(figure)
    assert told.count("90% undefined (n=0)") == 2
    assert told.count("undefined (n=0)") == 2 + 2 * 3, "preference, and three similarities"
    assert "undefined" in told
    assert any("Unit similarity is undefined on bare and empty." in " ".join(t.split()) for t in told)
    assert not any("position only" in text for text in told)


def test_a_metric_without_interval_is_drawn_without_bar(make_run):
    lone = replace(make_run(), unit_fraction={90: Metric(0.5, float("nan"), float("nan"), 1), 80: UNDEFINED})
    figure = two_panel_figure(lone)
    assert line(figure, "reached-90")[0][0] == 0.5
    assert not by_gid(figure, "reached-80")


@pytest.mark.parametrize(("count", "units"), [(1, 1), (1, 384), (3, 8), (MAX_RUNS, 64)])
def test_no_text_covers_another_or_leaves_the_figure(make_run, count, units, tmp_path):
    name = "_run/$x_{2}$ <b>with-a-very-long-checkpoint-name</b> & 100% · budget 768 · rows=question " * 3
    runs = [make_run(f"{n} {name}" if n != 1 else name, units=units) for n in range(count)]
    figures = [time_figure(runs), two_panel_figure(runs[0]) if count == 1 else comparison_figure(runs)]
    for figure in figures:
        assert not overlapping(figure)
        figure.savefig(tmp_path / "figure.png")
    keys = 0 if count == 1 else 2
    assert len(figures[1].legends[0].get_texts()) == count + keys


def test_too_many_runs_and_unlike_time_grids_are_refused(make_run, make_item):
    with pytest.raises(RunError, match="0 runs"):
        comparison_figure([])
    with pytest.raises(RunError, match=f"{MAX_RUNS + 1} runs"):
        time_figure([make_run()] * (MAX_RUNS + 1))
    with pytest.raises(RunError, match=r"\[20, 50\]"):
        time_figure([make_run(), gather("other", [make_item(0)], {}, time_bins=20)])


def test_the_same_run_gives_the_same_bytes(make_run, tmp_path):
    first = save_figure(two_panel_figure(make_run()), tmp_path / "first")
    second = save_figure(two_panel_figure(make_run()), tmp_path / "second")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_the_comparison_draws_each_runs_similarity_with_its_interval(make_run, metrics):
    other = replace(make_run("other"), unit_similarity=Metric(0.97, 0.96, 0.98, 5))
    figure = comparison_figure([make_run("run"), other])
    for position, run in enumerate((make_run("run"), other)):
        for name in ("unit_similarity", "patch_similarity"):
            metric = getattr(run, name)
            assert line(figure, f"{name}-{position}")[0].tolist() == [metric.mean]
            ends = line(figure, f"{name}-interval-{position}")
            assert ends[0].tolist() == [metric.ci_low, metric.ci_high]
            assert set(ends[1]) == set(line(figure, f"{name}-{position}")[1])
        assert line(figure, f"unit_similarity_between-{position}")[0].tolist() == [0.55]
        assert not by_gid(figure, f"unit_similarity_between-interval-{position}"), "it has none"
        np.testing.assert_allclose(line(figure, f"cumulative-{position}")[1], run.cumulative.mean(axis=0))
        np.testing.assert_allclose(line(figure, f"redundancy-{position}")[1], run.redundancy.mean(axis=0))
    assert {"0.970", "0.900"} <= set(texts(figure))


def test_the_sentence_under_the_comparison_is_made_from_what_is_drawn(make_run):
    high = replace(
        make_run("redundant"),
        unit_similarity=Metric(0.97, 0.96, 0.98, 5),
        patch_similarity=Metric(0.95, 0.94, 0.96, 5),
    )
    runs = [make_run("needle"), high]
    (statement,) = by_gid(comparison_figure(runs), "statement")
    assert " ".join(statement.get_text().split()) == " ".join(similarity_claims(runs))
    said = "Unit similarity and patch similarity are higher on redundant than on needle, with 95% intervals"
    assert similarity_claims(runs)[0].startswith(f"{said} apart")
    near = replace(high, unit_similarity=Metric(0.91, 0.88, 0.94, 5))
    apart, overlap = sorted(similarity_claims([runs[0], near]))
    assert apart.startswith(
        "Patch similarity is higher on redundant than on needle, with 95% intervals apart"
    )
    assert overlap.startswith("Unit similarity is higher on redundant than on needle, but the 95% intervals")


def test_the_caption_names_the_embeddings(make_run):
    layer, projector = (replace(make_run(name), feature=name) for name in ("layer:1", "projector"))

    def caption(figure: Figure) -> str:
        (text,) = by_gid(figure, "caption")
        return " ".join(text.get_text().split())

    assert "embeddings layer:1." in caption(two_panel_figure(layer))
    assert "embeddings layer:1." in caption(comparison_figure([layer, layer]))
    assert "different embeddings (run 1: layer:1; run 2: projector)" in caption(
        comparison_figure([layer, projector])
    )
    assert "embeddings" not in caption(two_panel_figure(make_run()))
