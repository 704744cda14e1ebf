"""TorchCodec, in its exact mode: a second opinion, where it can be trusted.

Even in exact mode it returns other frames than those asked for from MPEG-TS, MPEG-PS and AVI files
(research note `video-io-faults`, section 0); those are refused. For the others the number of frames
and the presentation time of each returned frame must agree with the index. Needs FFmpeg's shared
libraries (versions 4 to 9) and torch, which the other readers do not load.
"""

from __future__ import annotations

import numpy as np
import torch
import torchcodec
from jaxtyping import Int, UInt8
from torchcodec.decoders import VideoDecoder
from torchcodec.transforms import Resize

from diagnostics.errors import ConfigError, DamagedVideoError
from diagnostics.video.agreement import refuse_known_inexact, require_same_frames, require_same_size
from diagnostics.video.index import VideoIndex

__all__ = ["read", "versions"]

_BATCH = 32
"""Frames held twice at a time: TorchCodec returns a batch of its own, which is then copied."""

# The reading process only copies tensors: torch's own threads would stand in the model's way.
torch.set_num_threads(1)


def versions() -> dict[str, str]:
    """Of what draws and scales its pictures; its FFmpeg is the machine's own."""
    return {
        "torchcodec": torchcodec.__version__,
        "torch": torch.__version__,
        "ffmpeg_of_torchcodec": str(torchcodec.ffmpeg_major_version),
    }


def read(
    index: VideoIndex, indices: Int[np.ndarray, " n"], out: UInt8[np.ndarray, "n h w 3"], threads: int = 1
) -> None:
    """Fill `out` with the frames at `indices`. See `diagnostics.video.readers`.

    Raises:
        InexactReaderError: the file is of a kind that TorchCodec reads inexactly, or its frame count,
            times or picture size differ from the index.
        DamagedVideoError: decoding fails.
        ConfigError: its native libraries cannot be loaded.
    """
    refuse_known_inexact("torchcodec", index)
    height, width = out.shape[1:3]
    native = (height, width) == (index.height, index.width)
    try:
        video = VideoDecoder(
            index.path,
            dimension_order="NHWC",
            num_ffmpeg_threads=threads,
            seek_mode="exact",
            transforms=None if native else [Resize((height, width))],
        )
        wanted, places = np.unique(indices, return_inverse=True)
        for start in range(0, len(wanted), _BATCH):
            numbers = wanted[start : start + _BATCH]
            batch = video.get_frames_at(numbers.tolist())
            origin = video.metadata.begin_stream_seconds_from_content or 0.0
            require_same_frames(
                "torchcodec",
                index,
                video.metadata.num_frames or 0,
                batch.pts_seconds.numpy() - origin,
                numbers,
            )
            pictures = batch.data.numpy()
            require_same_size("torchcodec", index, pictures.shape[1:3], (height, width))
            for offset, picture in enumerate(pictures):
                out[places == start + offset] = picture
    except (RuntimeError, IndexError, ValueError) as error:
        # The libraries are loaded when the first decoder is made, and that failure has no type of its own.
        if "Could not load libtorchcodec" in str(error):
            raise ConfigError(
                "reader 'torchcodec' finds no FFmpeg libraries it can use.",
                remedy="Install FFmpeg 4 to 9 with shared libraries, or use reader=pyav.",
            ) from error
        raise DamagedVideoError(
            f"TorchCodec cannot decode it ({str(error).strip().splitlines()[0]}).",
            remedy="Copy or download it again, re-encode it, or use reader=pyav.",
            path=index.path,
        ) from error
