"""What reading costs: 64 uniform frames of a 30-minute film, and opening one of 37 hours.

    python tests/benchmarks/reading.py [--pairs N]

Ours, decord and TorchCodec each open the film and read the same 64 frames, one thread each, in
interleaved rounds of one process, in an order that rotates; what is compared is the CPU time of the
process with all its threads, since other processes may be running. The readers are called directly:
process start and the pipe to it are outside. Every frame is checked: the number it spells, and the
pixels of all three against each other. TorchCodec runs on the FFmpeg that PyAV's wheel carries, so
that both use the same decoder; decord brings its own.

The films are made once, into `.cache/bench`: one minute of drifting texture with sensor noise, 720p,
25 frames a second, H.264 with groups of 250 and three B-frames, its packets repeated 30 times; and
66,600 small pictures at one every two seconds, as a capsule endoscope takes them. `--full-rate` also
makes one of 37 hours at 25 frames a second (3.3 million pictures).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "bench"
WIDTH, HEIGHT, RATE, MINUTES = 1280, 720, 25, 30
MINUTE = 60 * RATE
BITS = 11
WANTED = np.round(np.linspace(0, MINUTES * MINUTE - 1, 64)).astype(np.int64)


def texture(generator: np.random.Generator) -> np.ndarray:
    """Reddish clouds at three scales, larger than the picture so that the camera can drift over them."""
    height, width = HEIGHT + 400, WIDTH + 400
    clouds = np.zeros((height, width, 3), np.float32)
    for scale, strength in ((8, 6), (32, 14), (128, 28)):
        coarse = generator.normal(0, strength, (height // scale + 2, width // scale + 2, 3)).astype(
            np.float32
        )
        for channel in range(3):
            plane = Image.fromarray(coarse[..., channel]).resize((width, height), Image.Resampling.BICUBIC)
            clouds[..., channel] += np.asarray(plane)
    return np.clip(clouds + np.array([150, 90, 80], np.float32), 0, 250).astype(np.uint8)


def spelled(picture: np.ndarray) -> int:
    """The number in the bar at the top of a picture."""
    centres = (np.arange(BITS) * 2 + 1) * WIDTH // (2 * BITS)
    return sum(int(value > 128) << bit for bit, value in enumerate(picture[16, centres].mean(axis=-1)))


def make_minute(path: Path) -> None:
    """Encode one minute; each picture spells its number in a bar 32 pixels high."""
    generator = np.random.default_rng(0)
    clouds = texture(generator)
    noise = generator.integers(0, 5, (8, HEIGHT, WIDTH, 1), dtype=np.uint8)
    edges = np.linspace(0, WIDTH, BITS + 1).astype(int)
    with av.open(str(path), "w", format="mp4") as out:
        options = {"preset": "veryfast", "g": "250", "bf": "3", "crf": "24"}
        stream = out.add_stream("libx264", rate=RATE, options=options)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for number in range(MINUTE):
            left, top = int(200 + 190 * np.sin(number / 90)), int(200 + 190 * np.cos(number / 130))
            picture = clouds[top : top + HEIGHT, left : left + WIDTH] + noise[number % 8]
            for bit in range(BITS):
                picture[:32, edges[bit] : edges[bit + 1]] = 235 if number >> bit & 1 else 20
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        out.mux(stream.encode())


def repeat(source: Path, target: Path, times: int, span: int) -> None:
    """Append the packets of `source` to themselves; `span` is its number of pictures."""
    with av.open(str(source)) as given, av.open(str(target), "w", format="mp4") as out:
        old = given.streams.video[0]
        new = out.add_stream_from_template(old)
        packets = [packet for packet in given.demux(old) if packet.size]
        first = [(packet.pts, packet.dts) for packet in packets]
        ticks = span * packets[0].duration
        for turn in range(times):
            for packet, (pts, dts) in zip(packets, first, strict=True):
                packet.pts, packet.dts = pts + turn * ticks, dts + turn * ticks
                packet.stream, packet.time_base = new, old.time_base
                out.mux(packet)


def make_capsule(
    path: Path, pictures: int = 66600, rate: Fraction = Fraction(1, 2), group: int = 250
) -> None:
    """Small pictures, each of one changing grey."""
    with av.open(str(path), "w", format="mp4") as out:
        options = {"g": str(group), "preset": "ultrafast", "bf": "0"}
        stream = out.add_stream("libx264", rate=rate, options=options)
        stream.width, stream.height, stream.pix_fmt = 144, 96, "yuv420p"
        for number in range(pictures):
            picture = np.full((96, 144, 3), 60 + number % 120, np.uint8)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        out.mux(stream.encode())


def made(name: str, make: Callable[[Path], None]) -> Path:
    """A film of the cache, made under a temporary name where it is missing."""
    path = CACHE / name
    if not path.exists():
        print(f"making {path.relative_to(ROOT)}", flush=True)
        part = path.with_suffix(".part")
        make(part)
        part.rename(path)
    return path


def ours(path: Path) -> np.ndarray:
    from diagnostics.video.index import open_index
    from diagnostics.video.readers import pyav

    index = open_index(path)
    out = np.empty((len(WANTED), HEIGHT, WIDTH, 3), np.uint8)
    pyav.read(index, WANTED, out)
    return out


def with_decord(path: Path) -> np.ndarray:
    import decord

    return decord.VideoReader(str(path), num_threads=1).get_batch(WANTED).asnumpy()


def with_torchcodec(path: Path) -> np.ndarray:
    from torchcodec.decoders import VideoDecoder

    decoder = VideoDecoder(str(path), dimension_order="NHWC", num_ffmpeg_threads=1, seek_mode="exact")
    return decoder.get_frames_at(WANTED.tolist()).data.numpy()


READERS: dict[str, Callable[[Path], np.ndarray]] = {
    "ours": ours,
    "decord": with_decord,
    "torchcodec": with_torchcodec,
}


def compare(path: Path, rounds: int) -> dict[str, object]:
    """CPU seconds of each reader in interleaved rounds, after one that only warms up and checks."""
    numbers = (WANTED % MINUTE).tolist()
    reference = ours(path)
    exact = {}
    for name, read in READERS.items():
        shown = read(path)
        right = [spelled(picture) for picture in shown] == numbers
        exact[name] = bool(right and np.array_equal(shown, reference))
    times: dict[str, list[float]] = {name: [] for name in READERS}
    names = list(READERS)
    for turn in range(rounds):
        for name in names[turn % 3 :] + names[: turn % 3]:
            started = time.process_time()
            READERS[name](path)
            times[name].append(time.process_time() - started)
            print(f"  round {turn + 1}: {name:10} {times[name][-1]:6.2f} CPU s", flush=True)
    ratios = {
        name: [mine / other for mine, other in zip(times["ours"], times[name], strict=True)]
        for name in READERS
        if name != "ours"
    }
    return {"exact": exact, "cpu_seconds": times, "ratios": ratios}


def opening(path: Path, rounds: int) -> list[float]:
    """Wall-clock seconds to index a film, file cache warm."""
    from diagnostics.video.index import open_index

    taken = []
    for _ in range(rounds):
        started = time.perf_counter()
        open_index(path)
        taken.append(time.perf_counter() - started)
    return taken


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.3f} (from {min(values):.3f} to {max(values):.3f}, n={len(values)})"


def lend_ffmpeg() -> None:
    """Start this program again with PyAV's FFmpeg under the names that TorchCodec looks for."""
    if os.environ.get("READING_BENCH_LIBRARIES"):
        return
    folder = CACHE / "ffmpeg"
    folder.mkdir(parents=True, exist_ok=True)
    for library in (Path(av.__file__).parents[1] / "av.libs").glob("lib*-*.so.*"):
        stem, _, version = library.name.partition(".so.")
        link = folder / f"{stem.rsplit('-', 1)[0]}.so.{version.split('.')[0]}"
        link.unlink(missing_ok=True)
        link.symlink_to(library)
    search = os.pathsep.join(filter(None, [str(folder), os.environ.get("LD_LIBRARY_PATH")]))
    environment = {**os.environ, "LD_LIBRARY_PATH": search, "READING_BENCH_LIBRARIES": "1"}
    os.execve(sys.executable, [sys.executable, *sys.argv], environment)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5, help="rounds of the three readers")
    parser.add_argument("--full-rate", action="store_true", help="also open 37 hours at 25 frames a second")
    chosen = parser.parse_args()
    lend_ffmpeg()
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    sys.path.insert(0, str(ROOT))

    minute = made("minute.mp4", make_minute)
    film = made("thirty_minutes.mp4", lambda part: repeat(minute, part, MINUTES, MINUTE))
    capsule = made("capsule_37h.mp4", make_capsule)
    print(
        f"{film.name}: {WIDTH}x{HEIGHT} H.264, {RATE} frames a second, {MINUTES * MINUTE} frames, "
        f"groups of 250, 3 B-frames, {film.stat().st_size / 1e6:.0f} MB; 64 uniform frames; "
        f"{os.cpu_count()} cores, {platform.processor() or platform.machine()}"
    )
    result = compare(film, chosen.pairs)
    for name, values in result["cpu_seconds"].items():
        print(f"{name:10} CPU s {spread(values)}; frames exact: {result['exact'][name]}")
    for name, values in result["ratios"].items():
        print(f"ours / {name}: {spread(values)}")
    faster = min(result["ratios"], key=lambda name: statistics.median(result["cpu_seconds"][name]))
    ratio = statistics.median(result["ratios"][faster])
    print(f"ours / the faster one ({faster}): {ratio:.3f} (at most 1.10)")

    opened = {"66,600 frames, 1 every 2 s": opening(capsule, 7)}
    if chosen.full_rate:
        second = made("small_minute.mp4", lambda part: make_capsule(part, MINUTE, Fraction(RATE)))
        turns = 37 * 60
        full = made("full_rate_37h.mp4", lambda part: repeat(second, part, turns, MINUTE))
        opened[f"{turns * MINUTE:,} frames, {RATE} a second"] = opening(full, 3)
    for name, values in opened.items():
        print(f"opening 37 hours, {name}: s {spread(values)} (target under 1 for 66,600)")
    passed = ratio <= 1.10 and result["exact"]["ours"] and statistics.median(next(iter(opened.values()))) < 1
    print(json.dumps({"benchmark": "reading", "ratio": ratio, "faster": faster, "passed": passed, **result}))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
