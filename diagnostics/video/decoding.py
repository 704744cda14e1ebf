"""Opening a file with PyAV and getting pictures out of it: shared by the index and the reader.

Two choices here decide what "the right frame" means:

- Decoders run with `err_detect=explode`. By default FFmpeg hides damage by painting over it with
  neighbouring pictures; a measurement must get an error instead.
- PyAV does not apply the rotation that a phone writes into the file; `draw` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.container import InputContainer
from av.stream import Discard, Disposition
from av.video.frame import VideoFrame
from av.video.reformatter import Interpolation, VideoReformatter
from av.video.stream import VideoStream
from jaxtyping import UInt8

from diagnostics.errors import DamagedVideoError, NoVideoStreamError, TruncatedVideoError, VideoError
from diagnostics.video.structure import is_known_container, missing_bytes

__all__ = ["draw", "frames_in_order", "open_stream", "shown_rotation", "versions"]

_NOT_VIDEO = {"tty", "lrc", "srt", "ass", "webvtt"}
"""FFmpeg demuxers that accept plain text, one of which (`tty`) draws it as a picture."""

# A title that is not UTF-8 must not keep a film from opening. From version 19 on PyAV does so by itself.
_LENIENT: dict[str, Any] = {"metadata_errors": "replace"} if int(av.__version__.split(".")[0]) < 19 else {}


def versions() -> dict[str, str]:
    """Of PyAV and of the FFmpeg in it."""
    libraries = {name: ".".join(map(str, numbers)) for name, numbers in av.library_versions.items()}
    return {"av": av.__version__, **libraries}


@contextmanager
def open_stream(path: str | Path) -> Iterator[tuple[InputContainer, VideoStream]]:
    """The file's container and its main video stream, ready to demux or decode with one thread.

    Cover pictures are passed over; of several streams FFmpeg's best is taken.

    Raises:
        NoVideoStreamError: there is none, or the file is no video container at all.
        TruncatedVideoError: it does not open, and its container says that bytes are missing.
        DamagedVideoError: it does not open though it looks like a video.
    """
    try:
        # "file:" and the whitelist keep a name such as "concat:a|b", or a play list, from opening
        # anything else.
        container = av.open(f"file:{path}", options={"protocol_whitelist": "file"}, **_LENIENT)
    except av.FFmpegError as error:
        raise _why_unopened(Path(path), error) from error
    with container:
        stream = _main_stream(container, path)
        for other in container.streams:
            if other is not stream:
                other.discard = Discard.all
        stream.codec_context.options = {"err_detect": "explode"}
        stream.codec_context.thread_type = "SLICE"
        stream.codec_context.thread_count = 1
        yield container, stream


def frames_in_order(container: InputContainer, stream: VideoStream) -> Iterator[VideoFrame]:
    """Every shown frame from the current position on, in the order of presentation."""
    for packet in container.demux(stream):
        yield from stream.codec_context.decode(packet)


def shown_rotation(frame: VideoFrame, path: str | Path) -> int:
    """Degrees by which the file asks for its pictures to be turned anticlockwise: 0, 90, 180 or 270.

    Raises:
        VideoError: the angle is not a multiple of 90 degrees.
    """
    rotation = frame.rotation % 360
    if rotation % 90:
        raise VideoError(
            f"its pictures are to be turned by {rotation} degrees, which is not a multiple of 90.",
            remedy="Re-encode it upright.",
            path=path,
        )
    return rotation


def draw(
    frame: VideoFrame, rotation: int, reformatter: VideoReformatter, out: UInt8[np.ndarray, "h w 3"]
) -> None:
    """Write `frame` into `out` as upright RGB, scaled where `out` has another size.

    Scaling (bicubic) and colour conversion are one pass of FFmpeg's swscale, which takes the colour
    matrix and range from the frame's own tags (BT.601 where it has none).
    """
    height, width = out.shape[:2] if rotation % 180 == 0 else out.shape[1::-1]
    native = (width, height) == (frame.width, frame.height)
    how = Interpolation.BILINEAR if native else Interpolation.BICUBIC
    # One thread: with several, swscale's slices round differently, by the number of cores.
    picture = reformatter.reformat(
        frame, width=width, height=height, format="rgb24", interpolation=how, threads=1
    )
    plane = picture.planes[0]
    rows = np.frombuffer(memoryview(plane), np.uint8).reshape(-1, plane.line_size)[:height, : width * 3]
    out[:] = np.rot90(rows.reshape(height, width, 3), rotation // 90)


def _main_stream(container: InputContainer, path: str | Path) -> VideoStream:
    streams = [s for s in container.streams.video if not s.disposition & Disposition.attached_pic]
    if not container.streams:
        raise DamagedVideoError(
            "its header names no streams at all.",
            remedy="Copy or download it again, or re-encode it.",
            path=path,
        )
    if not streams or container.format.name in _NOT_VIDEO:
        kinds = ", ".join(sorted({s.type for s in container.streams})) or "nothing"
        raise NoVideoStreamError(
            f"it holds no video stream (only: {kinds}).",
            remedy="Check that the path names the video itself.",
            path=path,
        )
    best = container.streams.best("video")
    return best if best in streams else streams[0]


def _why_unopened(path: Path, error: av.FFmpegError) -> VideoError:
    absent = missing_bytes(path)
    if absent:
        return TruncatedVideoError(
            f"it is cut short: at least {absent:,} bytes are missing ({error.strerror}).",
            remedy="Copy or download it again.",
            path=path,
        )
    if is_known_container(path):
        return DamagedVideoError(
            f"its header cannot be read ({error.strerror}).",
            remedy="Copy or download it again, or re-encode it.",
            path=path,
        )
    return NoVideoStreamError(
        f"it is not a video container that FFmpeg knows ({error.strerror}).",
        remedy="Check that the path names the video itself and not, say, a saved error page.",
        path=path,
    )
