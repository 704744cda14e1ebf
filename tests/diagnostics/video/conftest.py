"""Awkward video files, written on the spot: every picture spells its own number.

A reader's answer is checked against the picture itself, not against another reader. The clips are
small (192 x 96 unless odd sizes are the point) and made with PyAV, so that no ffmpeg program is needed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import cache
from pathlib import Path

import av
import numpy as np
import pytest

BITS = 12
HIDDEN = {"auto-alt-ref": "1", "lag-in-frames": "16", "deadline": "good", "cpu-used": "4"}
"""libvpx then codes pictures that are never shown."""

X264 = {"g": "48", "bf": "3", "preset": "veryfast", "sc_threshold": "0"}


def picture(number: int, width: int = 192, height: int = 96) -> np.ndarray:
    """RGB [height, width, 3]: the number as black and white columns above, a moving line below."""
    image = np.full((height, width, 3), 96, np.uint8)
    edges = np.linspace(0, width, BITS + 1).astype(int)
    for bit in range(BITS):
        image[: height // 2, edges[bit] : edges[bit + 1]] = 235 if number >> bit & 1 else 20
    line = height // 2 + number * 5 % (height // 2 - 6)
    image[line : line + 6, :, 0] = 220
    return image


def spelled(image: np.ndarray) -> int:
    """The number that a decoded picture spells."""
    height, width = image.shape[:2]
    edges = np.linspace(0, width, BITS + 1)
    centres = ((edges[:-1] + edges[1:]) / 2).astype(int)
    row = image[height // 4, centres].astype(float).mean(axis=-1)
    return sum(int(value > 128) << bit for bit, value in enumerate(row))


def encode(
    path: Path,
    numbers: Iterable[int],
    codec: str = "libx264",
    size: tuple[int, int] = (192, 96),
    rate: Fraction = Fraction(30),
    pts: Callable[[int], int] | None = None,
    time_base: Fraction | None = None,
    options: dict[str, str] | None = None,
    pixel_format: str = "yuv420p",
    container_format: str | None = None,
) -> Path:
    with av.open(str(path), "w", format=container_format) as out:
        stream = out.add_stream(codec, rate=rate, options=options or {})
        stream.width, stream.height = size
        stream.pix_fmt = pixel_format
        if time_base:
            stream.time_base = stream.codec_context.time_base = time_base
        for place, number in enumerate(numbers):
            frame = av.VideoFrame.from_ndarray(picture(number, *size), format="rgb24")
            if pts:
                frame.pts, frame.time_base = pts(place), time_base
            out.mux(stream.encode(frame))
        out.mux(stream.encode())
    return path


def copy_packets(
    source: Path,
    target: Path,
    keep: Callable[[av.Packet], bool] = lambda packet: True,
    shift: Fraction = Fraction(0),
    options: dict[str, str] | None = None,
    retime: Callable[[int, av.Packet], None] | None = None,
) -> Path:
    """Copy the video packets that `keep` accepts, their times moved by `shift` seconds."""
    with av.open(str(source)) as given, av.open(str(target), "w", options=options or {}) as out:
        old = given.streams.video[0]
        new = out.add_stream_from_template(old)
        ticks = round(shift / old.time_base)
        for place, packet in enumerate(p for p in given.demux(old) if p.size and keep(p)):
            packet.pts += ticks
            if packet.dts is not None:
                packet.dts += ticks
            if retime:
                retime(place, packet)
            packet.stream = new
            out.mux(packet)
    return target


def turn(source: Path, target: Path, matrix: tuple[int, int, int, int]) -> Path:
    """Write the 2 x 2 part of the display matrix (a b; c d) into an MP4's track header."""
    data = bytearray(source.read_bytes())
    header = data.index(b"tkhd") + 4
    start = header + (40 if data[header] == 0 else 52)
    for offset, value in zip((0, 4, 12, 16), matrix, strict=True):
        struct.pack_into(">i", data, start + offset, value << 16)
    target.write_bytes(data)
    return target


def truth(path: Path) -> list[int]:
    """The numbers spelled by a full decode in order, with FFmpeg's own defaults."""
    with av.open(str(path)) as given:
        best = given.streams.best("video")
        return [spelled(frame.to_ndarray(format="rgb24")) for frame in given.decode(best)]


class Clips:
    """The clips by name, each made once, when first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made: dict[str, Path] = {}

    def __getitem__(self, name: str) -> Path:
        if name not in self.made:
            self.made[name] = RECIPES[name](self, self.folder / name)
        return self.made[name]

    truth = staticmethod(cache(truth))
    spelled = staticmethod(spelled)
    picture = staticmethod(picture)
    encode = staticmethod(encode)
    turn = staticmethod(turn)


def _h264(clips: Clips, path: Path) -> Path:
    return encode(path, range(200), options=X264)


def _vfr(clips: Clips, path: Path) -> Path:
    gaps = np.where(np.random.default_rng(0).random(200) < 0.1, 40, 1) * 33
    times = np.cumsum(gaps)
    return encode(path, range(200), options=X264, pts=lambda i: int(times[i]), time_base=Fraction(1, 1000))


def _hevc(extra: str) -> Callable[[Clips, Path], Path]:
    def make(clips: Clips, path: Path) -> Path:
        return encode(
            path, range(120), "libx265", options={"x265-params": f"log-level=none:pools=1:scenecut=0:{extra}"}
        )

    return make


def _open_gop_264(clips: Clips, path: Path) -> Path:
    parameters = "open-gop=1:keyint=24:min-keyint=24:bframes=3:b-pyramid=normal:scenecut=0"
    return encode(path, range(200), options={"preset": "veryfast", "x264-params": parameters})


def _intra_refresh(clips: Clips, path: Path) -> Path:
    parameters = "intra-refresh=1:keyint=24:bframes=0:scenecut=0"
    return encode(path, range(120), options={"preset": "veryfast", "x264-params": parameters})


def _vp(codec: str, extra: dict[str, str]) -> Callable[[Clips, Path], Path]:
    def make(clips: Clips, path: Path) -> Path:
        return encode(
            path, range(120), codec, options={"g": "30", "deadline": "realtime", "cpu-used": "8", **extra}
        )

    return make


def _edit_list(clips: Clips, path: Path) -> Path:
    """A stream-copy trim: 14 frames shown of the 48 and more that are stored."""
    start, end = Fraction(81, 30), Fraction(95, 30)
    return copy_packets(
        clips["h264.mp4"],
        path,
        keep=lambda p: Fraction(48, 30) <= p.pts * p.time_base < end,
        shift=-start,
        options={"avoid_negative_ts": "disabled", "use_editlist": "1"},
    )


def _joined_mid_group(clips: Clips, path: Path) -> Path:
    """A recording that begins in the middle of a group: its first key frame comes later."""
    return copy_packets(
        clips["open_gop_264.ts"], path, keep=lambda p: p.dts * p.time_base > Fraction(1410 + 10, 1000)
    )


def _duplicated_times(clips: Clips, path: Path) -> Path:
    source = encode(path.with_suffix(".tmp.mkv"), range(60), "mjpeg", pixel_format="yuvj420p")

    def retime(place: int, packet: av.Packet) -> None:
        if place % 10 == 5:
            packet.pts = packet.dts = packet.pts - packet.duration

    return copy_packets(source, path, retime=retime)


def _cover(clips: Clips, path: Path) -> Path:
    """A cover picture (mjpeg, attached) stored before the video itself."""
    image = av.VideoFrame.from_ndarray(np.full((64, 64, 3), 200, np.uint8), format="rgb24")
    with av.open(str(clips["h264.mp4"])) as given, av.open(str(path), "w") as out:
        cover = out.add_stream("mjpeg", rate=1)
        cover.width = cover.height = 64
        cover.pix_fmt = "yuvj420p"
        cover.disposition = av.stream.Disposition.attached_pic
        old = given.streams.video[0]
        new = out.add_stream_from_template(old)
        out.mux(cover.encode(image))
        out.mux(cover.encode())
        for packet in given.demux(old):
            if packet.size:
                packet.stream = new
                out.mux(packet)
    return path


def _audio_only(clips: Clips, path: Path) -> Path:
    with av.open(str(path), "w") as out:
        stream = out.add_stream("aac", rate=16000, layout="mono")
        for start in range(0, 16384, 1024):
            frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
            frame.sample_rate, frame.pts = 16000, start
            out.mux(stream.encode(frame))
        out.mux(stream.encode())
    return path


def _first_part(source: str, share: float) -> Callable[[Clips, Path], Path]:
    def make(clips: Clips, path: Path) -> Path:
        data = clips[source].read_bytes()
        path.write_bytes(data[: int(len(data) * share)])
        return path

    return make


def _faststart(clips: Clips, path: Path) -> Path:
    return copy_packets(clips["h264.mp4"], path, options={"movflags": "faststart"})


def _damaged_middle(clips: Clips, path: Path) -> Path:
    """The packets of frames 90 to 110 are overwritten with noise."""
    data = bytearray(clips["h264.mp4"].read_bytes())
    noise = np.random.default_rng(0)
    with av.open(str(clips["h264.mp4"])) as given:
        for packet in given.demux(video=0):
            if packet.size and 90 <= packet.pts * packet.time_base * 30 < 110:
                size = packet.size - 8  # the length and header of the first unit stay
                data[packet.pos + 8 : packet.pos + 8 + size] = noise.bytes(size)
    path.write_bytes(data)
    return path


def _damaged_start(clips: Clips, path: Path) -> Path:
    data = bytearray(clips["h264.mp4"].read_bytes())
    with av.open(str(clips["h264.mp4"])) as given:
        first = next(packet for packet in given.demux(video=0) if packet.size)
    end = first.pos + first.size
    data[end - 600 : end] = np.random.default_rng(0).bytes(600)
    path.write_bytes(data)
    return path


def _damaged_avi(clips: Clips, path: Path) -> Path:
    data = bytearray(clips["mpeg4.avi"].read_bytes())
    middle = len(data) // 2
    data[middle : middle + 3000] = np.random.default_rng(0).bytes(3000)
    path.write_bytes(data)
    return path


def _damaged_header(clips: Clips, path: Path) -> Path:
    data = clips["h264.mp4"].read_bytes()
    moov = data.rindex(b"moov")
    path.write_bytes(data[: moov + 4] + np.random.default_rng(0).bytes(len(data) - moov - 4))
    return path


def _two_tracks(clips: Clips, path: Path) -> Path:
    """A small picture track before the main one, and sound beside them."""
    with av.open(str(path), "w") as out:
        small = out.add_stream("libx264", rate=30, options={"g": "10"})
        small.width, small.height, small.pix_fmt = 64, 48, "yuv420p"
        sound = out.add_stream("aac", rate=16000, layout="mono")
        main = out.add_stream("libx264", rate=30, options=X264)
        main.width, main.height, main.pix_fmt = 192, 96, "yuv420p"
        for number in range(60):
            out.mux(small.encode(av.VideoFrame.from_ndarray(picture(0, 64, 48), format="rgb24")))
            out.mux(main.encode(av.VideoFrame.from_ndarray(picture(number), format="rgb24")))
        for start in range(0, 32768, 1024):
            frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
            frame.sample_rate, frame.pts = 16000, start
            out.mux(sound.encode(frame))
        for stream in (small, main, sound):
            out.mux(stream.encode())
    return path


def _overclaiming(clips: Clips, path: Path) -> Path:
    """An AVI whose headers claim 75 frames where 60 are stored."""
    source = encode(path.with_suffix(".tmp.avi"), range(60), "mpeg4", options={"g": "12", "bf": "2"})
    data = bytearray(source.read_bytes())
    struct.pack_into("<I", data, data.index(b"avih") + 8 + 16, 75)
    struct.pack_into("<I", data, data.index(b"strh") + 8 + 32, 75)
    path.write_bytes(data)
    return path


def _page(clips: Clips, path: Path) -> Path:
    path.write_text("<!DOCTYPE html><html><body>404 not found</body></html>\n" * 20)
    return path


def _empty(clips: Clips, path: Path) -> Path:
    path.touch()
    return path


RECIPES: dict[str, Callable[[Clips, Path], Path]] = {
    "h264.mp4": _h264,
    "h264.mkv": _h264,
    "h264.ts": _h264,
    "faststart.mp4": _faststart,
    "fragmented.mp4": lambda clips, path: copy_packets(
        clips["h264.mp4"], path, options={"movflags": "frag_keyframe+empty_moov"}
    ),
    "raw.h264": _h264,
    "vfr.mp4": _vfr,
    "vfr.mkv": _vfr,
    "long_gop.mp4": lambda clips, path: encode(path, range(700), options={**X264, "g": "600"}),
    "all_key.mp4": lambda clips, path: encode(path, range(60), options={"g": "1", "preset": "veryfast"}),
    "short_gop.mp4": lambda clips, path: encode(
        path, range(90), options={**X264, "g": "4", "keyint_min": "1"}
    ),
    "hevc.mp4": _hevc("keyint=24:open-gop=0"),
    "hevc_open_gop.mp4": _hevc("keyint=12:min-keyint=12:open-gop=1"),
    "hevc_layers.mp4": _hevc("keyint=24:open-gop=0:temporal-layers=1"),
    "hevc.ts": _hevc("keyint=12:min-keyint=12:open-gop=1"),
    "raw.hevc": _hevc("keyint=24:open-gop=0"),
    "hevc10.mp4": lambda clips, path: encode(
        path,
        range(60),
        "libx265",
        options={"x265-params": "log-level=none:pools=1:keyint=24"},
        pixel_format="yuv420p10le",
    ),
    "open_gop_264.mp4": _open_gop_264,
    "open_gop_264.ts": _open_gop_264,
    "intra_refresh.ts": _intra_refresh,
    "vp8_hidden.webm": _vp("libvpx", HIDDEN),
    "vp9.webm": _vp("libvpx-vp9", {}),
    "vp9_hidden.webm": _vp("libvpx-vp9", HIDDEN),
    "av1.mp4": lambda clips, path: encode(path, range(60), "libsvtav1", options={"preset": "12", "g": "24"}),
    "mpeg4.avi": lambda clips, path: encode(path, range(120), "mpeg4", options={"g": "24", "bf": "2"}),
    "mpeg2.mpg": lambda clips, path: encode(
        path, range(120), "mpeg2video", rate=Fraction(25), options={"g": "15", "bf": "2"}
    ),
    "mjpeg.avi": lambda clips, path: encode(path, range(30), "mjpeg", pixel_format="yuvj420p"),
    "odd444.mp4": lambda clips, path: encode(
        path, range(60), size=(241, 121), options=X264, pixel_format="yuv444p"
    ),
    "single.mp4": lambda clips, path: encode(path, range(1), options=X264),
    "edit_list.mp4": _edit_list,
    "offset.ts": lambda clips, path: copy_packets(clips["h264.ts"], path, shift=Fraction(100)),
    "offset.mkv": lambda clips, path: copy_packets(clips["h264.mkv"], path, shift=Fraction(100)),
    "joined_mid_group.ts": _joined_mid_group,
    "duplicated_times.mkv": _duplicated_times,
    "cover.mp4": _cover,
    "видео 腔镜 é.mp4": lambda clips, path: copy_packets(clips["h264.mp4"], path),
    "overclaiming.avi": _overclaiming,
    "audio_only.m4a": _audio_only,
    "page.mp4": _page,
    "empty.mp4": _empty,
    "cut.mp4": _first_part("faststart.mp4", 0.6),
    "cut.mkv": _first_part("h264.mkv", 0.6),
    "cut.avi": _first_part("mpeg4.avi", 0.6),
    "no_header.mp4": _first_part("h264.mp4", 0.5),
    "damaged_middle.mp4": _damaged_middle,
    "damaged_start.mp4": _damaged_start,
    "damaged_middle.avi": _damaged_avi,
    "damaged_header.mp4": _damaged_header,
    "two_tracks.mp4": _two_tracks,
}


@pytest.fixture(scope="session")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Clips:
    """Awkward clips by file name, and the functions that make and read them."""
    return Clips(tmp_path_factory.mktemp("clips"))
