"""From replies to right and wrong: letters out of free text, option probabilities, accuracy."""

from __future__ import annotations

from diagnostics.scoring.accuracy import Accuracy, Score, accuracy, score_logprobs, score_reply
from diagnostics.scoring.letters import EXTRACTOR_VERSION, Extraction, extract_letter

__all__ = [
    "EXTRACTOR_VERSION",
    "Accuracy",
    "Extraction",
    "Score",
    "accuracy",
    "extract_letter",
    "score_logprobs",
    "score_reply",
]
