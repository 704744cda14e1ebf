"""Inside the model: attach to a live torch module, get back arrays with named axes.

    tokens = hooks.token_map(model, processor, inputs)
    with hooks.attention_rows(model, tokens, rows=tokens.question) as captured:
        model(**inputs)
    captured.unit_mass()  # [layer, head, role, unit], float32

Useful alone, in a notebook: nothing here knows of configurations, files or benchmarks.
"""

from hooks.activation_map import TokenActivation, token_activation
from hooks.attention import CaptureCheck, attention_rows, verify_capture
from hooks.attribution import Attribution, attribute
from hooks.captured import Captured, CapturedBatch
from hooks.edges import (
    PATHS,
    Edges,
    WindowStyle,
    edge_count,
    layer_window,
    path_edges,
    positions_to_everything,
    random_edges_like,
    units_to_everything,
)
from hooks.errors import (
    CaptureError,
    FamilyError,
    HooksError,
    InterventionError,
    SelfCheckError,
    TokenMapError,
    UnsupportedModelError,
)
from hooks.families import Family, families, family_of, use_family
from hooks.faults import layout_faults
from hooks.features import VisionReuse, VisualFeatures, reuse_vision, visual_features
from hooks.head_writes import HeadWrites, head_writes
from hooks.heads import HeadMeans, head_means, mean_ablate_heads, scale_heads
from hooks.knockout import Knockout, knock_out
from hooks.layout import Kind
from hooks.option_paths import OPTION_PATHS, option_path_edges
from hooks.patching import (
    DeepStack,
    Direction,
    PatchGrid,
    expected_forwards,
    patch,
    patch_grid,
    position_sets,
)
from hooks.patching_nnsight import patch_nnsight
from hooks.prefix import HeldPrompt, prefix
from hooks.relevance import Relevance, relevance
from hooks.residual import Lens, Residual, Unembedded, residual, unembed
from hooks.sinks import Sinks, SinkScores, find_sinks, sink_scores
from hooks.token_map import TokenMap, token_map
from hooks.unit_reuse import UnitReuse, reuse_units

__all__ = [
    "OPTION_PATHS",  # names of paths for `option_path_edges`, and what each is
    "PATHS",  # names of paths for `knock_out`, and what each is
    "Attribution",  # first-order effects of patching by layer and set of positions
    "CaptureCheck",  # what a capture did to one forward: logit difference, layers, row sums
    "CaptureError",  # a capture was used in a way that has no single right answer
    "Captured",  # attention mass of one sequence by layer, head, role, unit, token
    "CapturedBatch",  # one Captured for each sequence of a batch
    "DeepStack",  # DeepStack's later features: patched `with` the tokens, or left to `leak`
    "Direction",  # of a patch: denoising or noising
    "Edges",  # all causal pairs of one set of queries and one of keys
    "Family",  # what an architecture family says about its parts and its prompt
    "FamilyError",  # a family of one's own cannot be used
    "HeadMeans",  # mean output of each head over some positions
    "HeadWrites",  # what each head writes into the residual stream at one position
    "HeldPrompt",  # a prompt run once, whose later positions can be run again
    "HooksError",  # base of every deliberate error here
    "InterventionError",  # an intervention is impossible or has no single meaning
    "Kind",  # what a position of the prompt is: text, video, image, delimiter, timestamp, padding, audio
    "Knockout",  # an open knockout: edges, layers, and how much attention they had
    "Lens",  # how a state becomes logits
    "PatchGrid",  # logits after patching each set of positions at each layer, and what it cost
    "Relevance",  # what a row rests on through all layers: rollout and relevancy
    "Residual",  # the residual stream of one sequence by layer and position or unit
    "SelfCheckError",  # a capture did not see what it promised
    "SinkScores",  # how much of a sink each visual token is by layer
    "Sinks",  # what makes a token a sink in one model: dimensions, threshold, first layer
    "TokenActivation",  # where the evidence for one token of the vocabulary lies in the last layer
    "TokenMap",  # kinds, units, grid places and roles of a prompt's positions
    "TokenMapError",  # prompt and grids disagree, or a text is not in the prompt
    "Unembedded",  # a lens's view of states: chosen logits, normaliser, ranks, top tokens
    "UnitReuse",  # how many temporal units were encoded and how many taken from before
    "UnsupportedModelError",  # the model cannot be observed exactly
    "VisionReuse",  # how often the vision tower ran and was reused
    "VisualFeatures",  # embeddings of visual tokens by source
    "WindowStyle",  # how a window of layers lies about one
    "attention_rows",  # capture the attention of some query rows during a forward
    "attribute",  # estimate a patching grid from two forwards and one backward
    "edge_count",  # how many causal pairs several `Edges` have
    "expected_forwards",  # the arithmetic of a patching grid's cost
    "families",  # every known model type
    "family_of",  # the family of a loaded model
    "find_sinks",  # the sink dimensions of a model
    "head_means",  # note each head's mean output during a forward
    "head_writes",  # capture what each head writes at one position
    "knock_out",  # block attention edges during forwards
    "layer_window",  # layers around or beside one
    "layout_faults",  # what a prompt misstates about its videos' times
    "mean_ablate_heads",  # put a mean in place of heads' outputs
    "option_path_edges",  # the edges of a path to or from the right option, or the others
    "patch",  # put states of one video into the run of another, at one layer
    "patch_grid",  # the same at every layer and set of positions, running only what changes
    "patch_nnsight",  # `patch` by another road, through nnsight
    "path_edges",  # the edges of a named path
    "position_sets",  # the rows of a heat map: units, question, options, last
    "positions_to_everything",  # every road out of some positions
    "prefix",  # hold a prompt: its keys and values, and the inputs of layers
    "random_edges_like",  # a random control of the same size
    "relevance",  # keep what rollout and relevancy of one forward need
    "residual",  # capture the residual stream during a forward
    "reuse_units",  # encode each temporal unit once, in whatever order and company it is shown
    "reuse_vision",  # encode the same pixels once for many questions
    "scale_heads",  # multiply heads' outputs, by zero for one
    "sink_scores",  # score visual tokens as sinks during a forward
    "token_activation",  # map the evidence for one token during a forward
    "token_map",  # map a prompt from what the processor returned, and verify the map
    "unembed",  # the logit lens on any states
    "units_to_everything",  # every road out of some units
    "use_family",  # let a model be read by a family of one's own
    "verify_capture",  # compare a forward without capture and one with it
    "visual_features",  # capture embeddings of visual tokens during a forward
]
