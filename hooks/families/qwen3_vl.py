"""Qwen3-VL: each temporal unit is two frames and stands alone in the prompt.

A video of U units reads, in transformers >= 5.10.1,

    <|vision_start|>
      <0.3 seconds><|vision_start|><|video_pad|> x rows*cols<|vision_end|>      U times
    <|vision_end|>

and without the outer pair before 5.10 and in other stacks, so units are found by the placeholder id
and the grid, never by counting delimiters. The time is the mean of the unit's two frames. The grid
counts patches before the 2x2 merger; tokens are row-major. An odd last frame is shown twice by the
processor, which leaves the unit's second slot empty. DeepStack adds visual features after the first
decoder layers, so the input of layer k+1 is not the output of layer k there.
"""

from hooks.families._family import Family

__all__ = ["FAMILY"]

FAMILY = Family(
    name="qwen3_vl",
    model_types=("qwen3_vl", "qwen3_vl_moe"),
    unit_delimited=True,
    tells_time=True,
)
