"""The frame cache: the same pixels bit for bit, nothing decoded twice, and no death, damage or full disk that
a run would notice."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import av
import numpy as np
import pytest

from diagnostics.errors import DamagedVideoError, UnwritableFolderError
from diagnostics.experiments.read_ahead import OneWait
from diagnostics.store import keyed_arrays
from diagnostics.video.frame_cache import FrameCache
from diagnostics.video.reading import FrameReader

ROOT = Path(__file__).resolve().parents[3]

LOGGING = """
    import os
    from pathlib import Path
    from diagnostics.video.readers import pyav

    def read(index, indices, out, threads):
        with Path(__file__).with_suffix(".log").open("a") as log:
            log.write(" ".join(map(str, indices.tolist())) + "\\n")
        pyav.read(index, indices, out, threads)
        if "touched" in index.path:
            os.utime(index.path, ns=(0, os.stat(index.path).st_mtime_ns + 1))
"""


class Logging:
    """A reader module of our own that writes down what its process was asked to decode."""

    name = "logging_reader"

    def __init__(self, folder: Path) -> None:
        self.module, self._log = folder / f"{self.name}.py", folder / f"{self.name}.log"
        self.write("")

    def write(self, more: str) -> None:
        self.module.write_text(textwrap.dedent(LOGGING) + more)

    def asked(self) -> list[list[int]]:
        """What was asked since the last time."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        self._log.unlink(missing_ok=True)
        return [[int(number) for number in line.split()] for line in lines]


@pytest.fixture
def logging_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Logging:
    package = tmp_path / "frame_cache_readers"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    reader = Logging(package)
    reader.name = f"frame_cache_readers.{Logging.name}"
    return reader


@pytest.fixture
def lent_ffmpeg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyAV's FFmpeg under the names that TorchCodec looks for, as in `test_other_readers`."""
    libraries = tmp_path / "lent"
    libraries.mkdir()
    for library in (Path(av.__file__).parents[1] / "av.libs").glob("lib*-*.so.*"):
        stem, _, version = library.name.partition(".so.")
        (libraries / f"{stem.rsplit('-', 1)[0]}.so.{version.split('.')[0]}").symlink_to(library)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(libraries))


def opened(folder: Path, reader: str = "pyav", **settings) -> FrameReader:
    return FrameReader(reader=reader, cache=FrameCache(folder), **settings)


def kept(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.npz"))


# -- the same pixels, and nothing decoded twice


@pytest.mark.parametrize(
    ("reader", "clip", "max_side"),
    [
        ("pyav", "h264.mp4", None),
        ("pyav", "h264.mp4", 70),
        ("pyav", "hevc_open_gop.mp4", None),
        ("pyav", "mpeg4.avi", 70),
        ("decord", "h264.mp4", 70),
        ("torchcodec", "h264.mp4", 70),
    ],
)
def test_pixels_are_those_without_a_cache(clips, tmp_path, lent_ffmpeg, reader, clip, max_side):
    generator = np.random.default_rng(7)
    with FrameReader(reader=reader, max_side=max_side) as plain:
        n_frames = plain.index(clips[clip]).n_frames
        selections = [generator.integers(0, n_frames, 12), generator.integers(0, n_frames, 30), [0], []]
        expected = [plain.read(clips[clip], some) for some in selections]
    for used_again in range(2):
        with opened(tmp_path, reader, max_side=max_side) as cached:
            for some, pixels in zip(selections, expected, strict=True):
                got = cached.read(clips[clip], some)
                assert got.dtype == np.uint8
                assert got.flags.writeable
                np.testing.assert_array_equal(got, pixels)
            assert bool(cached._cache.used.misses) != bool(used_again)


def test_what_was_decoded_once_is_not_decoded_again(clips, tmp_path, logging_reader):
    """As the reading process saw it: each frame once, whatever the selection and the process."""
    with opened(tmp_path / "kept", logging_reader.name) as first:
        first.read(clips["h264.mp4"], [30, 10, 10, 20])
        first.read(clips["h264.mp4"], [10, 15, 20, 25])
        assert (first._cache.used.hits, first._cache.used.misses) == (2, 5)
    assert logging_reader.asked() == [[30, 10, 10, 20], [15, 25]]
    with opened(tmp_path / "kept", logging_reader.name) as second:
        second.read(clips["h264.mp4"], [30, 25, 20, 15, 10])
        told = second._cache.told()
    assert logging_reader.asked() == []
    assert (told["hits"], told["misses"], told["bytes_written"]) == (5, 0, 0)
    assert told["bytes_read"] == 5 * 192 * 96 * 3
    assert len(kept(tmp_path / "kept")) == 5


def test_another_size_reader_or_version_of_it_is_a_miss(clips, tmp_path, logging_reader):
    def misses(reader: str, **settings) -> int:
        with opened(tmp_path / "kept", reader, **settings) as cached:
            cached.read(clips["h264.mp4"], [3, 4])
            return cached._cache.used.misses

    assert misses(logging_reader.name) == 2
    assert misses(logging_reader.name, max_side=96) == 2
    assert misses(logging_reader.name, max_side=5000) == 0, "the native size by another name"
    assert misses("pyav") == 2
    logging_reader.write("# another version\n")
    assert misses(logging_reader.name) == 2
    logging_reader.write("def versions(): return {'library': '2'}\n")
    assert misses(logging_reader.name) == 2
    assert misses(logging_reader.name) == 0


def test_another_content_under_the_same_name_is_a_miss(clips, tmp_path):
    """Other bytes of the same size and date included; a copy that keeps its date is the same content."""
    film = tmp_path / "film.mp4"
    shutil.copy2(clips["h264.mp4"], film)
    seen = []

    def misses(path: Path) -> int:
        with opened(tmp_path / "kept") as cached:
            seen.append(cached.read(path, [1, 50]))
            return cached._cache.used.misses

    assert [misses(film), misses(film), misses(clips["h264.mp4"])] == [2, 0, 0]
    facts = film.stat()
    data = bytearray(film.read_bytes())
    data[-1] ^= 1  # the end of the last box: no picture changes
    film.write_bytes(data)
    os.utime(film, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert misses(film) == 2, "the same size and date"
    os.utime(film, ns=(0, facts.st_mtime_ns + 1))
    assert misses(film) == 2, "another date"
    shutil.copyfile(clips["short_gop.mp4"], film)
    assert misses(film) == 2
    with FrameReader() as plain:
        np.testing.assert_array_equal(seen[-1], plain.read(film, [1, 50]))


def test_a_file_that_changes_while_it_is_decoded_is_not_kept(clips, tmp_path, logging_reader):
    film = tmp_path / "touched.mp4"
    shutil.copy2(clips["h264.mp4"], film)
    with opened(tmp_path / "kept", logging_reader.name) as cached:
        cached.read(film, [3, 4])
    assert kept(tmp_path / "kept") == []


def test_errors_are_those_without_a_cache(clips, tmp_path):
    film = clips["damaged_middle.mp4"]

    def told(reader: FrameReader) -> str:
        with pytest.raises(DamagedVideoError) as caught:
            reader.read(film, range(reader.index(film).n_frames))
        return str(caught.value)

    with FrameReader() as plain:
        expected = told(plain)
    with opened(tmp_path) as cached:
        cached.read(film, [0, 1])
        assert [told(cached), told(cached)] == [expected, expected]
    assert len(kept(tmp_path)) == 2


def test_what_a_sampler_looks_at_is_served_and_not_kept(clips, tmp_path):
    with opened(tmp_path) as cached:
        run = OneWait(cached)
        run.read(clips["h264.mp4"], np.arange(20))
        assert kept(tmp_path) == []
        run.read(clips["h264.mp4"], np.array([5, 6]), keep=True)
        run.read(clips["h264.mp4"], np.arange(4, 8))
        assert cached._cache.used.hits == 2
    assert len(kept(tmp_path)) == 2


def test_pictures_in_a_folder_are_not_kept_twice(tmp_path):
    from PIL import Image

    folder = tmp_path / "frames_fps3"
    folder.mkdir()
    for number in range(3):
        Image.fromarray(np.full((8, 8, 3), number, np.uint8)).save(folder / f"{number:05d}.png")
    with opened(tmp_path / "kept") as cached:
        assert cached.read(folder, [2, 0])[:, 0, 0, 0].tolist() == [2, 0]
        Image.fromarray(np.full((8, 8, 3), 77, np.uint8)).save(folder / "00002.png")
        assert cached.read(folder, [2])[0, 0, 0, 0] == 77
    assert kept(tmp_path / "kept") == []


# -- deaths and neighbours

KILLED = """
import os, signal, sys
from pathlib import Path
import numpy as np
from diagnostics.video.frame_cache import FrameCache
from diagnostics.video.reading import FrameReader

plain = np.savez
def savez(file, **arrays):
    plain(file, **arrays)
    if len(list(Path(sys.argv[2]).rglob("*.npz"))) == 3:
        file.truncate(file.tell() // 2)
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)
np.savez = savez
with FrameReader(cache=FrameCache(Path(sys.argv[2]))) as reader:
    reader.read(sys.argv[1], range(10))
"""

READING = """
import sys, hashlib
from pathlib import Path
from diagnostics.video.frame_cache import FrameCache
from diagnostics.video.reading import FrameReader

cache = FrameCache(Path(sys.argv[2]), float(sys.argv[3]), say=sys.exit)
with FrameReader(cache=cache) as reader:
    for start in range(0, 60, 4):
        pixels = reader.read(sys.argv[1], range(start, start + 4))
        assert pixels.shape == (4, 96, 192, 3)
        print(hashlib.sha256(pixels).hexdigest())
assert cache.used.damaged == 0 and cache.used.stopped is None, cache.used
"""


def started(program: str, *arguments: object) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def test_a_writer_that_is_killed_leaves_whole_frames(clips, tmp_path):
    with started(KILLED, clips["h264.mp4"], tmp_path) as process:
        assert process.wait(120) == -signal.SIGKILL
    (left,) = tmp_path.rglob("*.partial")
    assert left.stat().st_size
    assert len(kept(tmp_path)) == 3
    with FrameReader() as plain:
        expected = plain.read(clips["h264.mp4"], range(10))
    with opened(tmp_path) as cached:
        np.testing.assert_array_equal(cached.read(clips["h264.mp4"], range(10)), expected)
        used = cached._cache.used
        assert (used.hits, used.misses, used.damaged) == (3, 7, 0)
    assert left.exists(), "young enough to be another process's"
    os.utime(left, (0, time.time() - 7200))
    with opened(tmp_path) as cached:
        cached.read(clips["h264.mp4"], [11])
    assert not left.exists()


@pytest.mark.parametrize("limit", [1.0, 10 * 65000 / 2**30])
def test_two_processes_write_the_same_frames(clips, tmp_path, limit):
    """The second limit holds ten frames, so that both evict all the time."""
    both = [started(READING, clips["h264.mp4"], tmp_path, limit) for _ in range(2)]
    said = [process.communicate(timeout=240)[0].split() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    with FrameReader() as plain:
        expected = [plain.read(clips["h264.mp4"], range(start, start + 4)) for start in range(0, 60, 4)]
    assert said == [[hashlib.sha256(pixels).hexdigest() for pixels in expected]] * 2
    assert not list(tmp_path.rglob("*.partial"))
    if limit == 1.0:
        assert len(kept(tmp_path)) == 60
    else:
        assert len(kept(tmp_path)) <= 11, "a frame above the limit for the second process"


# -- the limit

SIZE = (50, 80)
FRAME_BYTES = 50 * 80 * 3
WHAT = {"film": "a"}


def of_numbers(numbers):
    """Frame `n` is all `n`."""
    pixels = np.empty((len(numbers), *SIZE, 3), np.uint8)
    pixels[:] = np.asarray(numbers)[:, None, None, None]
    return pixels


def ask(cache: FrameCache, *numbers: int) -> tuple[int, int]:
    """Hits and misses of one request, its pictures checked."""
    before = (cache.used.hits, cache.used.misses)
    wanted = np.array(numbers)
    got = cache.frames(WHAT, wanted, SIZE, of_numbers, may_keep=lambda: True)
    np.testing.assert_array_equal(got, of_numbers(wanted))
    return cache.used.hits - before[0], cache.used.misses - before[1]


def gib(n_bytes: int) -> float:
    return n_bytes / 2**30


def held(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_the_least_recently_used_go_first(tmp_path):
    file_bytes = FRAME_BYTES + 1000
    cache = FrameCache(tmp_path, gib(10 * file_bytes + 8192))
    for number in range(10):
        assert ask(cache, number) == (0, 1)
    ask(cache, 0, 1)  # used last, though the oldest
    ask(cache, 100)
    assert cache.used.evicted
    gone = cache.used.evicted
    assert ask(FrameCache(tmp_path, 1.0), 0, 1) == (2, 0)
    left = FrameCache(tmp_path, 1.0)
    survived = [number for number in range(2, 10) if ask_only(left, number)]
    assert survived == list(range(2 + gone, 10)), "from the oldest on"


def ask_only(cache: FrameCache, number: int) -> bool:
    """Whether it is kept, without keeping it."""
    hits = cache.used.hits
    cache.frames(WHAT, np.array([number]), SIZE, of_numbers, may_keep=lambda: False)
    return cache.used.hits > hits


def test_one_process_never_exceeds_the_limit(tmp_path):
    limit = 12 * FRAME_BYTES
    generator = np.random.default_rng(3)
    cache = FrameCache(tmp_path, gib(limit))
    for _ in range(60):
        ask(cache, *generator.integers(0, 40, 3).tolist())
        assert held(tmp_path) <= limit
    assert cache.used.evicted > 10
    assert cache.used.hits > 10
    assert held(tmp_path) > limit / 2, "it is used"


def test_a_smaller_limit_shrinks_what_is_there_and_nothing_else(tmp_path):
    """Neither foreign files nor those of another format are touched, wherever the person points."""
    ask(FrameCache(tmp_path), *range(20))
    room = kept(tmp_path)[0].parent
    foreign = [tmp_path / "video.mp4", room / "notes.npz", room.parent / "mine" / f"{'0' * 32}.npz"]
    for path in foreign:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"mine")
        os.utime(path, (0, 0))
    ask(FrameCache(tmp_path, gib(5 * FRAME_BYTES)), 99)
    assert all(path.exists() for path in foreign)
    assert held(tmp_path) <= 5 * FRAME_BYTES + 4 * len(foreign)


def test_a_frame_above_the_limit_is_not_kept(tmp_path):
    ask(FrameCache(tmp_path), 1, 2)
    small = FrameCache(tmp_path, gib(FRAME_BYTES))
    assert ask(small, 1, 2, 3) == (2, 1)
    assert len(kept(tmp_path)) == 2, "nor does it push others out"


# -- damage


def test_any_damaged_byte_is_noticed_or_harmless(tmp_path):
    """Each byte in turn, of headers, shape, checksum and pixels: the picture is right or found damaged."""
    key, pixels = {"a": 1}, np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    path = keyed_arrays.array_path(tmp_path, key)
    keyed_arrays.write_array(path, key, pixels)
    data = path.read_bytes()
    noticed = 0
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 0xFF if place % 2 else 0x01
        path.write_bytes(damaged)
        try:
            got = keyed_arrays.read_array(path, key)
        except keyed_arrays.DamagedArrayError:
            noticed += 1
            continue
        assert got.shape != pixels.shape or np.array_equal(got, pixels), place
    assert noticed > len(data) / 2


@pytest.mark.parametrize("how", ["cut", "flipped", "empty", "shape", "another", "folder"])
def test_a_damaged_file_is_said_once_removed_and_decoded_again(tmp_path, how):
    said: list[str] = []
    ask(FrameCache(tmp_path), 1, 2, 3)
    files = kept(tmp_path)
    for path in files[:2]:
        data = bytearray(path.read_bytes())
        if how == "flipped":
            data[len(data) // 2] ^= 4
        path.write_bytes({"cut": data[:-100], "empty": b"", "another": files[2].read_bytes()}.get(how, data))
        if how == "shape":
            with np.load(path) as held_there:
                key, values = held_there["key"], held_there["values"]
            with path.open("wb") as file:
                np.savez(file, key=key, values=values[:, :-1])
        if how == "folder":
            path.unlink()
            path.mkdir()
    cache = FrameCache(tmp_path, say=said.append)
    assert ask(cache, 1, 2, 3) == (1, 2)
    assert cache.used.damaged == 2
    assert "damaged" in said[0]
    if how == "folder":
        assert "cannot be written" in said[1], "a folder in a file's place cannot be replaced"
        return
    assert len(said) == 1
    assert ask(FrameCache(tmp_path, say=said.append), 1, 2, 3) == (3, 0)


# -- disks


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EIO])
def test_on_a_full_disk_the_run_goes_on(tmp_path, monkeypatch, code):
    said: list[str] = []
    cache = FrameCache(tmp_path, say=said.append)
    ask(cache, 1, 2)
    writes = []

    def savez(file, **arrays):
        writes.append(1)
        file.write(b"a part")
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(np, "savez", savez)
    assert ask(cache, 1, 2, 3, 4) == (2, 2), "what is kept is still read"
    assert ask(cache, 5) == (0, 1)
    assert len(writes) == 1, "not tried again"
    assert len(said) == 1
    assert os.strerror(code) in said[0]
    assert os.strerror(code) in (cache.line() or "")
    assert cache.told()["stopped"] == os.strerror(code)
    assert not list(tmp_path.rglob("*.partial"))


def test_a_folder_that_cannot_be_made_is_named_and_a_full_disk_is_not_an_error(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(UnwritableFolderError, match=r"reading\.cache"):
        FrameCache(tmp_path / "file")

    def mkdir(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    said: list[str] = []
    with monkeypatch.context() as full:
        full.setattr(Path, "mkdir", mkdir)
        cache = FrameCache(tmp_path / "new", say=said.append)
    assert ask(cache, 1) == (0, 1)
    assert len(said) == 1


def test_unused_it_says_nothing(tmp_path):
    assert FrameCache(tmp_path).line() is None
