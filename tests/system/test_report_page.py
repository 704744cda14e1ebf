"""The page of a run in a real Chromium: opens, fetches nothing, filters, sorts, shows what the files hold.

Screenshots go to `.cache/report/`, for people.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from diagnostics.report.page import write_page
from diagnostics.store import Record, read_records
from diagnostics.store.asked import read_items

from ..page_runs import HOSTILE, TASKS, write_long_run, write_page_run

pytestmark = pytest.mark.system

SCREENSHOTS = Path(__file__).resolve().parents[2] / ".cache" / "report"
WIDTHS = {"wide": (1440, 900), "narrow": (390, 844)}
N_ITEMS = 130


@dataclass
class Opened:
    """A page in the browser, and what it said and asked for."""

    tab: Any
    run: Path
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def listed(self) -> list[str]:
        """Ids in the list, from its buttons."""
        return self.tab.locator("#list .name").all_text_contents()

    def order(self) -> list[int]:
        return self.tab.evaluate("report.order()")

    def open(self, item: str) -> None:
        """Show an item by a click on its entry; the filters are as they are."""
        self.tab.fill("#f-text", item.split("\n")[0][:30])
        place = next(place for place, record in enumerate(self.records) if record.item_id == item)
        self.tab.locator(f"#list button[data-place='{place}']").click()
        self.tab.wait_for_selector(f"#item[data-place='{place}']")

    @property
    def records(self) -> list[Record]:
        return read_records(self.run)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    assert chromium is not None, "tests/system_packages.sh installs Debian's Chromium"
    with sync_playwright() as play:
        # Root may not use Chromium's sandbox, and a container is run as root.
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = write_page_run(tmp_path_factory.mktemp("page") / "run", N_ITEMS)
    write_page(run)
    return run


def opened(browser: Any, run: Path, size: tuple[int, int] = WIDTHS["wide"]) -> Opened:
    tab = browser.new_page(viewport={"width": size[0], "height": size[1]})
    page = Opened(tab, run)
    tab.on("console", lambda message: page.said.append(f"{message.type}: {message.text}"))
    tab.on("pageerror", lambda error: page.said.append(f"error: {error}"))
    tab.on("request", lambda request: page.asked.append(request.url))
    tab.goto((run / "report.html").as_uri())
    tab.wait_for_selector("html[data-ready]", state="attached")
    tab.wait_for_selector("#item[data-place]")
    return page


@pytest.fixture
def page(browser: Any, run: Path) -> Iterator[Opened]:
    page = opened(browser, run)
    yield page
    page.tab.close()


@pytest.mark.parametrize("width", sorted(WIDTHS))
def test_it_opens_without_an_error_a_request_or_a_sideways_scroll(
    browser: Any, run: Path, width: str
) -> None:
    page = opened(browser, run, WIDTHS[width])
    for record in page.records[:8]:
        page.open(record.item_id)
    page.tab.wait_for_timeout(200)
    assert page.said == []
    fetched = [url for url in page.asked if not url.startswith("data:")]
    assert fetched == [(run / "report.html").as_uri()]
    assert page.tab.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width][0]
    page.tab.close()


def test_filters_give_the_right_items(page: Opened) -> None:
    records = page.records
    expected = {
        ("#f-task", f"={TASKS[1]}"): [r.task == TASKS[1] for r in records],
        ("#f-outcome", "right"): [r.correct is True for r in records],
        ("#f-outcome", "wrong+none"): [r.correct is False for r in records],
        ("#f-outcome", "none"): [r.correct is False and r.answer is None for r in records],
        ("#f-outcome", "failed"): [r.error is not None for r in records],
        ("#f-lift", "above"): [(r.measures.get("evidence_log_lift") or -1.0) > 0 for r in records],
        ("#f-lift", "undefined"): [r.measures.get("evidence_log_lift") is None for r in records],
    }
    for (control, value), kept in expected.items():
        page.tab.select_option(control, value)
        assert page.order() == [place for place, keep in enumerate(kept) if keep], (control, value)
        assert len(page.order()) not in (0, len(records)), "a filter that keeps some"
        assert page.listed() == [records[place].item_id for place in page.order()][:100]
        assert page.tab.text_content("#count").startswith(f"{len(page.order())} of {len(records)} ")
        page.tab.select_option(control, "")
    page.tab.select_option("#f-task", f"={TASKS[0]}")
    page.tab.select_option("#f-lift", "below")
    both = [r.task == TASKS[0] and (r.measures.get("evidence_log_lift") or 0.0) < 0 for r in records]
    even = [r.task == TASKS[0] and r.measures.get("evidence_log_lift") == 0.0 for r in records]
    assert page.order() == [place for place, (a, b) in enumerate(zip(both, even, strict=True)) if a or b]


def test_sorts_put_undefined_last_in_either_order(page: Opened) -> None:
    values = [record.measures.get("evidence_log_lift") for record in page.records]
    undefined = [place for place, value in enumerate(values) if value is None]
    known = [place for place, value in enumerate(values) if value is not None]
    page.tab.select_option("#f-sort", "evidence_log_lift")
    assert page.order() == [*sorted(known, key=lambda place: (-values[place], place)), *undefined]
    page.tab.select_option("#f-order", "up")
    assert page.order() == [*sorted(known, key=lambda place: (values[place], place)), *undefined]
    assert page.tab.locator("#list .value").first.text_content() == "-1"
    page.tab.select_option("#f-sort", "gini")
    assert [page.records[place].measures.get("gini", 2.0) for place in page.order()] == sorted(
        record.measures.get("gini", 2.0) for record in page.records
    )


def test_the_list_goes_on_by_a_click(page: Opened) -> None:
    assert len(page.listed()) == 100
    page.tab.click("#more")
    assert page.listed() == [record.item_id for record in page.records]
    assert page.tab.locator("#more").is_hidden()


def test_patches_over_a_frame_are_the_tensor_files(page: Opened) -> None:
    record = next(record for record in page.records if record.item_id == "item-50")
    page.open(record.item_id)
    with h5py.File(page.run / record.tensor_file) as file:
        mass = file["attention/token_mass"][:, 0].astype(np.float64)
        unit, row, col = (file[f"tokens/{name}"][...] for name in ("unit_index", "row", "col"))
    share = mass.mean(axis=0) / mass.mean(axis=0).sum()
    page.tab.locator("#strip .card[data-unit='4']").click()
    assert page.tab.get_attribute("#patches", "data-unit") == "4"
    canvas = page.tab.locator("#patches canvas[data-painted]")
    box = canvas.bounding_box()
    for place in ((0, 0), (1, 1), (0, 2)):
        expected = float(share[(unit == 4) & (row == place[0]) & (col == place[1])][0])
        shown = page.tab.evaluate("([row, col]) => report.patch(4, row, col)", list(place))
        assert shown == pytest.approx(expected, abs=share.max() / 254), "half a level of the square root"
        # The same by pointing at it, as a person does.
        canvas.hover(
            position={"x": (place[1] + 0.5) * box["width"] / 3, "y": (place[0] + 0.5) * box["height"] / 2}
        )
        told = page.tab.text_content("#patches .readout")
        assert told.startswith(f"row {place[0]}, column {place[1]}: ")
        assert float(told.split(": ")[1].split("%")[0]) / 100 == pytest.approx(
            expected, abs=share.max() / 254 + 5e-4
        )
    page.tab.select_option("#patch-layer", "1")
    expected = float((mass[1] / mass[1].sum())[(unit == 4) & (row == 1) & (col == 2)][0])
    assert page.tab.evaluate("report.patch(4, 1, 2)") == pytest.approx(expected, abs=1 / 254)


def test_hotter_patches_are_lighter_over_a_grey_picture(page: Opened) -> None:
    """The pixels themselves: the overlay's colours rise in lightness with the attention."""
    record = next(record for record in page.records if record.item_id == "item-51")
    page.open(record.item_id)
    page.tab.locator("#strip .card[data-unit='0']").click()
    page.tab.wait_for_selector("#patches canvas[data-painted]")
    values, lights = page.tab.evaluate(
        """() => {
            const canvas = document.querySelector("#patches canvas"), pen = canvas.getContext("2d");
            const values = [], lights = [];
            for (let row = 0; row < 2; row++) for (let col = 0; col < 3; col++) {
                const x = (col + .5) * canvas.width / 3, y = (row + .5) * canvas.height / 2;
                const [r, g, b] = pen.getImageData(x, y, 1, 1).data;
                values.push(report.patch(0, row, col));
                lights.push(.2126 * r + .7152 * g + .0722 * b);
            }
            return [values, lights];
        }"""
    )
    assert np.argsort(values).tolist() == np.argsort(lights).tolist()


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_hostile_text_is_text(page: Opened, name: str) -> None:
    number = list(HOSTILE).index(name)
    item = list(read_items(page.run).values())[number]
    page.open(item.id)
    assert page.tab.text_content("#item h3") == item.id
    assert page.tab.text_content("#item .asked") == HOSTILE[name]
    assert page.tab.locator("#item .options li").nth(1).locator("[dir=auto]").text_content() == HOSTILE[name]
    assert page.tab.evaluate("window.hacked") is None
    assert page.tab.evaluate("document.querySelectorAll('#item script, #item iframe, #item b').length") == 0
    assert page.tab.evaluate("document.documentElement.scrollWidth") <= WIDTHS["wide"][0]


def test_heads_on_demand(page: Opened) -> None:
    record = next(record for record in page.records if record.item_id == "item-52")
    page.open(record.item_id)
    with h5py.File(page.run / record.tensor_file) as file:
        mass = file["attention/unit_mass"][...].astype(np.float64)
    page.tab.locator("#layers").scroll_into_view_if_needed()
    select = page.tab.locator(".controls select").nth(2)
    select.select_option("1")
    plot = page.tab.locator("#layers .plot")
    box = plot.bounding_box()
    plot.hover(position={"x": 3.5 * box["width"] / 6, "y": 2.5 * box["height"] / 3})
    told = page.tab.text_content("#layers .readout")
    assert told.startswith("head 2, unit 3, ")
    shown = float(told.split(": ")[1].split("%")[0]) / 100
    assert shown == pytest.approx(mass[1, 2, 0, 3], abs=mass[:, :, 0].max() / 254 + 5e-4)


def test_units_without_a_picture_are_folded_and_unfolded(browser: Any, tmp_path: Path) -> None:
    run = write_long_run(tmp_path / "run")
    write_page(run)
    page = opened(browser, run)
    strip = page.tab.locator("#strip")
    assert strip.locator("img").count() == 10
    told = [text.removeprefix("+") for text in strip.locator(".fold").all_text_contents()]
    # Ten pictures, one every 20; slots 41 to 44, evidence, are a fold of their own between 1 and 15 others.
    assert [int(text) for text in told] == [19, 19, 4, 15, *[19] * 7]
    assert "Pictures of 10 of 200 were saved." in page.tab.text_content("#item .legend")
    assert strip.locator(".card").nth(0).locator(".time").all_text_contents() == ["blank", "told 01:40.0"]
    assert strip.locator("[data-unit='20'] .time").all_text_contents() == ["00:10.0", "told 01:50.0"]
    strip.locator(".fold.evidence").click()
    found = strip.locator(".card.evidence")
    times = [card.locator(".time").first.text_content() for card in found.all()]
    assert times == ["00:20.5", "00:21.0", "00:21.5", "00:22.0"]
    assert page.tab.text_content("#item .error") == "ObservationError It failed."
    page.tab.evaluate("report.select(43)")
    assert strip.locator("[aria-pressed=true]").get_attribute("data-unit") == "43"
    page.tab.evaluate("report.select(50)")
    assert strip.locator("[aria-pressed=true]").text_content() == "+15", "the fold that holds it"
    assert page.said == []
    page.tab.close()


def test_what_went_wrong_links_to_the_items(page: Opened) -> None:
    failed = next(record for record in page.records if record.error is not None)
    page.tab.locator("#wrong tr.failed summary").click()
    page.tab.locator("#wrong tr.failed .ids a").click()
    place = page.records.index(failed)
    page.tab.wait_for_selector(f"#item[data-place='{place}']")
    assert page.tab.text_content("#item h3") == failed.item_id
    hostile = list(read_items(page.run))[list(HOSTILE).index("template")]
    page.tab.evaluate("id => { location.hash = `item=${encodeURIComponent(id)}`; }", hostile)
    page.tab.wait_for_function("id => document.querySelector('#item h3').textContent === id", arg=hostile)
    assert page.said == []


def test_items_beside_the_page_open_too(browser: Any, tmp_path: Path) -> None:
    run = write_page_run(tmp_path / "run", 9)
    write_page(run, largest=10_000)
    page = opened(browser, run)
    record = page.records[6]
    page.open(record.item_id)
    files = json.loads(page.tab.text_content("#files"))
    assert page.said == []
    assert [url for url in page.asked if url.endswith(".js")] == [
        (run / files[place]).as_uri() for place in (0, 6)
    ]
    (run / files[7]).unlink()
    page.tab.fill("#f-text", "")
    page.tab.locator("#list button[data-place='7']").click()
    page.tab.wait_for_selector("#item .error")
    assert files[7] in page.tab.text_content("#item")
    page.tab.close()


def test_a_link_opens_at_its_item(browser: Any, run: Path) -> None:
    tab = browser.new_page()
    tab.goto(f"{(run / 'report.html').as_uri()}#item=item-77")
    tab.wait_for_selector("#item[data-place]")
    assert tab.text_content("#item h3") == "item-77"
    tab.close()


@pytest.mark.parametrize("width", sorted(WIDTHS))
def test_screenshots_for_people(browser: Any, run: Path, width: str) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page = opened(browser, run, WIDTHS[width])
    page.open("item-50")
    page.tab.fill("#f-text", "")
    page.tab.wait_for_selector("#patches canvas[data-painted]")
    path = SCREENSHOTS / f"report-{WIDTHS[width][0]}.png"
    page.tab.screenshot(path=path, full_page=True)
    assert path.stat().st_size > 20_000
    page.tab.emulate_media(media="print")
    page.tab.pdf(path=SCREENSHOTS / f"report-{WIDTHS[width][0]}.pdf", format="A4", print_background=True)
    assert page.said == []
    page.tab.close()
