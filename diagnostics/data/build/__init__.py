"""Questions from annotated procedures: MedHorizon's construction pipeline for anybody's videos.

    python -m diagnostics.data.build tracks.json --out my_benchmark

The format of the tracks, the stages and the settings are in docs/build.md.
"""

from diagnostics.data.build.pipeline import Built, build, build_in_memory, make_questions
from diagnostics.data.build.settings import TASKS, Config

__all__ = [
    "TASKS",  # the thirteen families: wording, evidence kind, flag
    "Built",  # result of `build`
    "Config",  # how questions are made
    "build",  # track files in, question file, audit and review out
    "build_in_memory",  # annotations that are no file in, items out
    "make_questions",  # the stages between, from annotations to questions
]
