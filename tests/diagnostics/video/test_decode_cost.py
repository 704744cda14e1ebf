"""Pictures to decode against what the exact reader gives its decoder."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

from diagnostics.video.decode_cost import Coding, coding_of, pictures_to_decode
from diagnostics.video.decoding import open_stream
from diagnostics.video.index import open_index
from diagnostics.video.pictures import open_pictures
from diagnostics.video.readers import pyav
from diagnostics.video.reading import FrameReader

FILMS = {
    "long_groups.mp4": (400, {"g": "400"}),
    "short_groups.mp4": (300, {"g": "12"}),
    "no_reordering.mp4": (300, {"g": "100", "bf": "0"}),
    "broadcast.ts": (300, {"g": "50"}),
    "matroska.mkv": (300, {"g": "100"}),
}


def film(path: Path, n: int, options: dict[str, str], codec: str = "libx264") -> Path:
    noise = np.random.default_rng(0).integers(0, 256, (64, 96, 3), np.uint8)
    with av.open(str(path), "w") as out:
        stream = out.add_stream(codec, rate=25, options={"sc_threshold": "0", **options})
        stream.width, stream.height, stream.pix_fmt = 96, 64, "yuv420p"
        stream.codec_context.thread_count = 1
        for number in range(n):
            picture = np.roll(noise, number, axis=1)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        out.mux(stream.encode(None))
    return path


class Watched:
    """Something of PyAV with one method replaced."""

    def __init__(self, plain: Any, **replaced: Any) -> None:
        self.__dict__.update(plain=plain, replaced=replaced)

    def __getattr__(self, name: str) -> Any:
        return self.replaced.get(name) or getattr(self.plain, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.plain, name, value)


def referenced(path: Path) -> set[int]:
    """Times of the pictures that the decoder itself takes for referred to."""
    with open_stream(path) as (container, stream):
        stream.codec_context.skip_frame = "NONREF"
        return {
            frame.pts for packet in container.demux(stream) for frame in stream.codec_context.decode(packet)
        }


def decoded(monkeypatch: pytest.MonkeyPatch, path: Path, frames: Sequence[int]) -> int:
    """Pictures that the reader has decoded."""
    index, kept, count = open_index(path), referenced(path), [0]

    @contextmanager
    def watched(where):
        with open_stream(where) as (container, stream):
            decoder = stream.codec_context

            def decode(packet):
                if packet is not None and packet.size:
                    count[0] += str(decoder.skip_frame) != "NONREF" or packet.pts in kept
                return decoder.decode(packet)

            yield (
                Watched(
                    container,
                    demux=lambda _: container.demux(stream),
                    seek=lambda offset, **options: container.seek(offset, **{**options, "stream": stream}),
                ),
                Watched(stream, codec_context=Watched(decoder, decode=decode)),
            )

    monkeypatch.setattr(pyav, "open_stream", watched)
    pyav.read(index, np.array(frames), np.empty((len(frames), index.height, index.width, 3), np.uint8))
    return count[0]


@pytest.fixture(scope="module")
def films(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("films")
    return {name: film(folder / name, n, options) for name, (n, options) in FILMS.items()}


@pytest.mark.parametrize("budget", [2, 8, 32])
@pytest.mark.parametrize("name", FILMS)
def test_what_the_reader_decodes(monkeypatch, films, name, budget):
    index = open_index(films[name])
    frames = np.linspace(0, index.n_frames - 1, budget).round().astype(int).tolist()
    planned = pictures_to_decode(index, frames, coding_of(index))
    measured = decoded(monkeypatch, films[name], frames)
    assert planned == pytest.approx(measured, rel=0.2), "off by more than a fifth"


def test_few_key_frames_mean_much_decoding(films):
    """One frame near the end of each: all of a single group before it, or the last short group."""
    coding = Coding(1.0, 0)
    assert pictures_to_decode(open_index(films["long_groups.mp4"]), [390], coding) == 391
    assert pictures_to_decode(open_index(films["short_groups.mp4"]), [298], coding) == 298 % 12 + 1
    assert pictures_to_decode(open_index(films["short_groups.mp4"]), [0, 12, 13], coding) == 1 + 2
    assert pictures_to_decode(open_index(films["short_groups.mp4"]), [], coding) == 0


def test_other_readers_decode_every_picture(films):
    index = open_index(films["long_groups.mp4"])
    assert coding_of(index).referenced < 0.9
    assert coding_of(index, "torchcodec").referenced == 1.0


def test_without_reliable_times_a_file_is_decoded_whole(tmp_path):
    index = open_index(film(tmp_path / "a.avi", 40, {}, "mpeg4"))
    assert not index.reliable
    assert pictures_to_decode(index, [3, 9], coding_of(index)) == 40 + 10


def test_a_folder_of_pictures_is_decoded_as_wanted(tmp_path):
    folder = tmp_path / "fps3"
    folder.mkdir()
    for number in range(5):
        Image.new("RGB", (32, 32)).save(folder / f"{number:05d}.jpg")
    index = open_pictures(folder)
    assert pictures_to_decode(index, [0, 4, 4], coding_of(index)) == 2


def test_the_reading_process_says_the_same(films):
    with FrameReader() as reader:
        for path in films.values():
            assert reader.coding(path) == coding_of(open_index(path))
