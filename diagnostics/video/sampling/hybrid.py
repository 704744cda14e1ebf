"""Half uniform, half by change.

MedHorizon, section 7 (RQ4): "half uniform and half differential", nothing else said. Decided here:
budget // 2 candidates evenly spaced, then those of largest change among the others (`differential`)
until the budget is met, so that nothing is shown twice and nothing is left empty.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from diagnostics.data.items import Item
from diagnostics.video.candidates import Candidates, evenly
from diagnostics.video.sampling.differential import NEEDS, Config, change_of, most_changed, needs

__all__ = ["NEEDS", "Config", "choose", "needs"]


def choose(config: Config, candidates: Candidates, item: Item) -> Int[np.ndarray, " chosen"]:
    """`budget` candidates, half of them evenly spaced."""
    uniform = evenly(len(candidates), config.budget // 2)
    change = change_of(config.metric, candidates)
    return most_changed(change, candidates.seconds, config.budget, config.min_gap, uniform)
