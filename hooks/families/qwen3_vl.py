"""Qwen3-VL: each temporal unit is two frames and stands alone in the prompt.

A video of U units reads, in transformers >= 5.10.1,

    <|vision_start|>
      <0.3 seconds><|vision_start|><|video_pad|> x rows*cols<|vision_end|>      U times
    <|vision_end|>

and without the outer pair before 5.10 and in other stacks, so units are found by the placeholder id
and the grid, never by counting delimiters. The time is the mean of the unit's two frames, each
`index / fps`. The grid counts patches before the 2x2 merger; tokens are row-major. An odd last frame is
shown twice by the processor, which leaves the unit's second slot empty. DeepStack adds visual features
after the first decoder layers, so the input of layer k+1 is not the output of layer k there.

The processor must be told not to sample again (`do_sample_frames=False`): seven pre-selected frames
without metadata come back as four. Indices are passed as an array because the processor pads a list of
odd length in place. `size` bounds time x height x width of the whole video, so frames shrink as their
number grows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hooks.families._grid import GridFamily

__all__ = ["FAMILY", "Qwen3VL"]


@dataclass(frozen=True)
class Qwen3VL(GridFamily):
    """A budget of pixels over time x height x width of a video."""

    def frame_limit(self, frame_pixels: int, n_frames: int, current: Mapping[str, int]) -> dict[str, int]:
        """The video processor's `size` that gives each of `n_frames` frames at most `frame_pixels`.

        Nothing is enlarged either: the least pixels of a video (`shortest_edge`) would enlarge the frames of
        short ones alone. Of an odd number of frames the processor counts one more or one less: give an even
        one.
        """
        return {**current, "shortest_edge": 1, "longest_edge": frame_pixels * (n_frames + n_frames % 2)}

    def pixels_left(self, n_frames: int, current: Mapping[str, int]) -> int:
        """Pixels of each of `n_frames` frames under a budget of time x height x width."""
        return int(current["longest_edge"]) // (n_frames + n_frames % 2)


FAMILY = Qwen3VL(
    name="qwen3_vl",
    model_types=("qwen3_vl", "qwen3_vl_moe"),
    unit_delimited=True,
    tells_time=True,
    told_by_metadata=True,
    takes_pixel_cap=True,
)
