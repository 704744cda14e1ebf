"""Inside the model: attach to a live torch module, get back arrays with named axes.

    tokens = hooks.token_map(model, processor, inputs)
    with hooks.attention_rows(model, tokens, rows=tokens.question) as captured:
        model(**inputs)
    captured.unit_mass()  # [layer, head, role, unit], float32

Useful alone, in a notebook: nothing here knows of configurations, files or benchmarks.
"""

from hooks.attention import CaptureCheck, attention_rows, verify_capture
from hooks.captured import Captured, CapturedBatch
from hooks.errors import CaptureError, HooksError, SelfCheckError, TokenMapError, UnsupportedModelError
from hooks.families import Family, families, family_of
from hooks.features import VisionReuse, VisualFeatures, reuse_vision, visual_features
from hooks.layout import Kind
from hooks.token_map import TokenMap, token_map
from hooks.unit_reuse import UnitReuse, reuse_units

__all__ = [
    "CaptureCheck",  # what a capture did to one forward: logit difference, layers, row sums
    "CaptureError",  # a capture was used in a way that has no single right answer
    "Captured",  # attention mass of one sequence by layer, head, role, unit, token
    "CapturedBatch",  # one Captured for each sequence of a batch
    "Family",  # what an architecture family says about its parts and its prompt
    "HooksError",  # base of every deliberate error here
    "Kind",  # what a position of the prompt is: text, video, image, delimiter, timestamp, padding
    "SelfCheckError",  # a capture did not see what it promised
    "TokenMap",  # kinds, units, grid places and roles of a prompt's positions
    "TokenMapError",  # prompt and grids disagree, or a text is not in the prompt
    "UnitReuse",  # how many temporal units were encoded and how many taken from before
    "UnsupportedModelError",  # the model cannot be observed exactly
    "VisionReuse",  # how often the vision tower ran and was reused
    "VisualFeatures",  # embeddings of visual tokens by source
    "attention_rows",  # capture the attention of some query rows during a forward
    "families",  # every known model type
    "family_of",  # the family of a loaded model
    "reuse_units",  # encode each temporal unit once, in whatever order and company it is shown
    "reuse_vision",  # encode the same pixels once for many questions
    "token_map",  # map a prompt from what the processor returned, and verify the map
    "verify_capture",  # compare a forward without capture and one with it
    "visual_features",  # capture embeddings of visual tokens during a forward
]
