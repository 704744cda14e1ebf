"""`report.html` of 1,253 measurements with tensors and thumbnails: seconds, memory, and when it is usable.

    python -m tests.benchmarks.page

Prints the CPU time and the largest memory of writing the page, in a process that does nothing else; the size
of what was written; and, where playwright and a Chromium are installed, the seconds from opening the page to
its first item, to a filtered list and to another item, the median of five.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from diagnostics.data.items import Evidence, Item, Window
from diagnostics.store import Metric, Record, RunFolder, Summary
from diagnostics.store.asked import write_items
from diagnostics.video.selection import Slot

from .opened import ITEMS, made

PICTURES = 32
PICTURE = (90, 160)

WRITE = """
import json, resource, sys, time
from pathlib import Path
from diagnostics.report.page import write_page
wall, cpu = time.perf_counter(), time.process_time()
write_page(Path(sys.argv[1]))
print(json.dumps({
    "wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu,
    "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
}))
"""


def write_run(path: Path, rng: np.random.Generator, n_items: int) -> None:
    items = []
    with RunFolder.open(
        path, {"exp": {"name": "attention_drift"}}, "hash", experiment="attention_drift"
    ) as run:
        for number in range(n_items):
            name, tensors = f"item-{number}", made(f"item-{number}", rng)
            options = tuple(f"option {letter} of {name}" for letter in "ABCD")
            evidence = Evidence((Window(2.5, 3.0),))
            items.append(
                Item(
                    name,
                    Path("v"),
                    "v",
                    f"What happens in {name}?",
                    options,
                    "A",
                    f"task {number % 9}",
                    "",
                    evidence,
                )
            )
            frames, seconds = tensors.units.frame_index.ravel(), tensors.units.true_seconds.ravel()
            record = Record(
                item_id=name,
                video_id=f"video-{number // 3}",
                task=f"task {number % 9}",
                answer="ABCD"[number % 4],
                target="A",
                correct=number % 4 == 0,
                option_logprobs={letter: -1.0 - place for place, letter in enumerate("ABCD")},
                measures={f"measure_{place}": float(rng.random()) for place in range(30)}
                | {"evidence_log_lift": float(rng.normal())},
                slots=tuple(
                    Slot("v", int(frame), float(second), float(second))
                    for frame, second in zip(frames, seconds, strict=True)
                ),
            )
            pictures = rng.integers(0, 255, (PICTURES, *PICTURE, 3), dtype=np.uint8) // 8 + 100
            run.save_thumbnails(
                name, record.condition_id, pictures.astype(np.uint8), range(0, 2 * PICTURES, 2)
            )
            run.save(record, tensors)
        records = run.records()
        run.write_summary(
            Summary.of("attention_drift", records, {"accuracy": Metric(0.25, 0.2, 0.3, n_items)})
        )
    write_items(path, items)


def usable(page: Path) -> dict[str, float] | None:
    """Median seconds to the first item, to a filtered list, to another item; None without a browser."""
    chromium = shutil.which("chromium")
    if find_spec("playwright") is None or chromium is None:
        return None
    from playwright.sync_api import sync_playwright

    found: dict[str, list[float]] = {"first item": [], "filtered": [], "another item": []}
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for _ in range(5):
            tab = browser.new_page(viewport={"width": 1440, "height": 900})
            begun = time.perf_counter()
            tab.goto(page.as_uri(), wait_until="commit")
            tab.wait_for_selector("#item[data-place]")
            found["first item"].append(time.perf_counter() - begun)
            begun = time.perf_counter()
            tab.select_option("#f-outcome", "wrong")
            tab.select_option("#f-sort", "evidence_log_lift")
            found["filtered"].append(time.perf_counter() - begun)
            begun = time.perf_counter()
            place = tab.evaluate("report.order()[50]")
            tab.evaluate("place => report.open(place)", place)
            tab.wait_for_selector(f"#item[data-place='{place}'] canvas[data-painted]")
            found["another item"].append(time.perf_counter() - begun)
            tab.close()
        browser.close()
    return {name: statistics.median(times) for name, times in found.items()}


def main(n_items: int = ITEMS) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        write_run(run, np.random.default_rng(0), n_items)
        done = subprocess.run(
            [sys.executable, "-c", WRITE, str(run)], check=True, capture_output=True, text=True
        )
        told = json.loads(done.stdout)
        page = run / "report.html"
        beside = sum(path.stat().st_size for path in run.glob("report/*"))
        took = f"{told['cpu']:.1f} s of CPU, {told['wall']:.1f} s, {told['mib']:.0f} MiB at most"
        print(f"{n_items} measurements: {took}")
        print(f"report.html {page.stat().st_size / 2**20:.1f} MiB, report/ {beside / 2**20:.1f} MiB")
        if (times := usable(page)) is None:
            print("no browser: playwright and chromium are needed to see how soon the page is usable")
        else:
            print(", ".join(f"{name} {seconds:.2f} s" for name, seconds in times.items()))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
