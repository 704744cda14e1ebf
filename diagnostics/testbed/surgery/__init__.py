"""Checkpoints made from the tiny model by editing weights: one thing in each is true by construction.

    model.path=tiny/drifting@4    the logits of the heads that attend to the evidence, divided by 4
    model.path=tiny/decoy@16      drifting@16 with heads that attend to the evidence and write nothing
    model.path=tiny/first_stream  of what DeepStack adds, the first stream alone
    model.path=tiny/single_road   one head, and no other, carries the colour from the video to the answer
    model.path=tiny/order_blind   the answer cannot depend on the order of the units

Each is made on first use and kept in the cache as an ordinary checkpoint, with `surgery.json` beside the
weights. `docs/testbed.md` says what is exactly true of each.
"""

from diagnostics.testbed.surgery.making import PREFIX, SURGERIES, named_checkpoint, surgical_checkpoint

__all__ = [
    "PREFIX",  # what the paths of these checkpoints begin with
    "SURGERIES",  # their names, and whether they take a dose
    "named_checkpoint",  # the checkpoint that `model.path` names
    "surgical_checkpoint",  # the checkpoint of a surgery, made if need be
]
