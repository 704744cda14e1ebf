"""decord, the reader most published pipelines used: for repeating them, where it can be trusted.

decord 0.6 returns other frames than those asked for, without an error, from MPEG-TS, MPEG-PS and AVI
files and from streams with open groups of pictures; it shows what an edit list trims away
(research note `video-io-faults`, section 0). Such files are refused. For the others the number of
frames and the time of each wanted one must agree with the index.
"""

from __future__ import annotations

import decord
import numpy as np
import PIL
from jaxtyping import Float, Int, UInt8
from PIL import Image

from diagnostics.errors import DamagedVideoError, InexactReaderError
from diagnostics.video.agreement import refuse_known_inexact, require_same_frames, require_same_size
from diagnostics.video.index import VideoIndex

__all__ = ["read", "versions"]

_BATCH = 32
"""Frames decoded at a time: decord returns a batch at native size, which is then scaled."""


def versions() -> dict[str, str]:
    """Of what draws and scales its pictures."""
    return {"decord": decord.__version__, "pillow": PIL.__version__}


def read(
    index: VideoIndex, indices: Int[np.ndarray, " n"], out: UInt8[np.ndarray, "n h w 3"], threads: int = 1
) -> None:
    """Fill `out` with the frames at `indices`. See `diagnostics.video.readers`.

    Raises:
        InexactReaderError: the file is of a kind that decord reads inexactly, it cannot open it, or its
            frame count, times or picture size differ from the index.
        DamagedVideoError: decoding fails.
    """
    refuse_known_inexact("decord", index)
    try:
        video = decord.VideoReader(index.path, num_threads=threads)
    except decord.DECORDError as error:
        raise InexactReaderError(
            f"decord cannot open it ({_first_line(error)}).", remedy="Use reader=pyav.", path=index.path
        ) from error
    starts: Float[np.ndarray, " frame"] = video.get_frame_timestamp(np.arange(len(video)))[:, 0]
    require_same_frames("decord", index, len(video), starts - starts[0], np.arange(len(video)))
    wanted, places = np.unique(indices, return_inverse=True)
    height, width = out.shape[1:3]
    for start in range(0, len(wanted), _BATCH):
        try:
            batch = video.get_batch(wanted[start : start + _BATCH]).asnumpy()
        except decord.DECORDError as error:
            raise DamagedVideoError(
                f"decord cannot decode it ({_first_line(error)}).",
                remedy="Copy or download it again, re-encode it, or use reader=pyav.",
                path=index.path,
            ) from error
        require_same_size("decord", index, batch.shape[1:3])
        for offset, picture in enumerate(batch):
            if picture.shape[:2] != (height, width):
                scaled = Image.fromarray(picture).resize((width, height), Image.Resampling.BICUBIC)
                picture = np.asarray(scaled)
            out[places == start + offset] = picture


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
