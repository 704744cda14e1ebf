"""MVBench (arXiv 2311.17005; released as OpenGVLab/MVBench): `data=mvbench data.root=FOLDER`.

Twenty tasks of 200 questions in the layout of `diagnostics.data.task_files`; the folders are those of the
published notebook. Five tasks bound a clip. Episodic Reasoning's videos are folders of pictures at 3 a second
(`diagnostics.video.pictures`).
"""

from __future__ import annotations

from pathlib import Path

from diagnostics.data.task_files import Config, TaskFile, load_tasks
from diagnostics.data.validation import Loaded

__all__ = ["FAMILIES", "FILES", "TASKS", "Config", "load"]

FILES = (
    TaskFile("Action Sequence", "action_sequence", "star/Charades_v1_480", True, "Action"),
    TaskFile("Action Prediction", "action_prediction", "star/Charades_v1_480", True, "Action"),
    TaskFile("Action Antonym", "action_antonym", "ssv2_video", False, "Action"),
    TaskFile("Fine-grained Action", "fine_grained_action", "Moments_in_Time_Raw/videos", False, "Action"),
    TaskFile("Unexpected Action", "unexpected_action", "FunQA_test/test", False, "Action"),
    TaskFile("Object Existence", "object_existence", "clevrer/video_validation", False, "Object"),
    TaskFile("Object Interaction", "object_interaction", "star/Charades_v1_480", True, "Object"),
    TaskFile("Object Shuffle", "object_shuffle", "perception/videos", False, "Object"),
    TaskFile("Moving Direction", "moving_direction", "clevrer/video_validation", False, "Position"),
    TaskFile("Action Localization", "action_localization", "sta/sta_video", True, "Position"),
    TaskFile("Scene Transition", "scene_transition", "scene_qa/video", False, "Scene"),
    TaskFile("Action Count", "action_count", "perception/videos", False, "Count"),
    TaskFile("Moving Count", "moving_count", "clevrer/video_validation", False, "Count"),
    TaskFile("Moving Attribute", "moving_attribute", "clevrer/video_validation", False, "Attribute"),
    TaskFile("State Change", "state_change", "perception/videos", False, "Attribute"),
    TaskFile("Fine-grained Pose", "fine_grained_pose", "nturgbd", False, "Pose"),
    TaskFile("Character Order", "character_order", "perception/videos", False, "Character"),
    TaskFile("Egocentric Navigation", "egocentric_navigation", "vlnqa", False, "Cognition"),
    TaskFile("Episodic Reasoning", "episodic_reasoning", "tvqa/frames_fps3_hq", True, "Cognition"),
    TaskFile(
        "Counterfactual Inference",
        "counterfactual_inference",
        "clevrer/video_validation",
        False,
        "Cognition",
    ),
)
TASKS = tuple(entry.task for entry in FILES)
FAMILIES = tuple(dict.fromkeys(entry.family for entry in FILES))


def load(config: Config) -> Loaded:
    """The items of all tasks.

    Raises:
        DataFileError, ConfigError: see `load_tasks`.
    """
    return load_tasks(Path(config.root), FILES, config.folders, what="MVBench")
