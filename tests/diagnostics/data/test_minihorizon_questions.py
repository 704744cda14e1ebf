"""MiniHorizon's questions: out of the pipeline, right, balanced, and silent about their answers."""

import dataclasses
import itertools
import json
import re
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import make_pipeline

from diagnostics.data.build import build
from diagnostics.data.build import reasons as reasons_module
from diagnostics.data.build.annotations import VideoFacts
from diagnostics.data.minihorizon.files import content
from diagnostics.data.minihorizon.inquiry import INQUIRIES
from diagnostics.data.minihorizon.procedure import PHASES, make_procedures
from diagnostics.data.minihorizon.questions import TASKS, ask, build_config
from diagnostics.data.minihorizon.settings import Config
from diagnostics.data.minihorizon.tracks import as_tracks

from .retold import Case, retell, shown, truth

NOWHERE = Path("nowhere")
ASKED = {
    # What the tiny model has learnt to read, word by word.
    "Hist": r"What colour is the lesion\?",
    "Size": r"How large is the lesion\?",
    "Site": r"Where is the lesion\?",
    "RSR": r"Which of these steps is carried out first: \w+ or \w+\?",
    "PR": r"Which phase is under way between \d:\d\d:\d\d and \d:\d\d:\d\d\?",
    "IR": r"Which instrument is in use when the phase \w+ first begins\?",
    "LLS": r"What is the colour of the largest lesion\?",
    "CPR": r"How many separate times is the step \w+ carried out\?",
    "LA": r"How many lesions are seen in the whole examination\?",
}


def cases(config):
    told = as_tracks(config, make_procedures(config))["procedures"]
    return {one["video"]: Case(one) for one in told}


def letters_are_balanced(items):
    for task in {item.task for item in items}:
        letters = Counter(item.answer for item in items if item.task == task)
        among = "AB" if task == "RSR" else "ABCD"
        assert max(letters.values()) - min(letters[letter] for letter in among) <= 1, (task, letters)


# -- the pipeline on thirty simulated procedures


@pytest.fixture(scope="module")
def thirty(tmp_path_factory):
    """Every question that thirty procedures allow, written as a benchmark of its own: files and all."""
    folder = tmp_path_factory.mktemp("thirty")
    config = Config(split="train", n_videos=30, seed=7)
    (folder / "tracks.json").write_text(json.dumps(as_tracks(config, make_procedures(config))))
    frames = {procedure.video: procedure.n_frames for procedure in make_procedures(config)}

    def probe(video):
        n_frames = frames[video.name]
        return VideoFacts(n_frames / 4, 4.0, np.arange(n_frames) / 4)

    everything = dataclasses.replace(
        build_config(config),
        per_procedure=None,
        tasks_per_procedure=None,
        even_answers=False,
        lesion_subjects="any",
    )
    return config, build([folder / "tracks.json"], folder / "out", everything, probe=probe)


def test_two_hundred_items_agree_with_a_derivation_from_the_tracks(thirty):
    config, built = thirty
    told, random = cases(config), np.random.default_rng(1)
    by_task = {task: [item for item in built.items if item.task == task] for task in TASKS}
    sampled = [items[place] for items in by_task.values() for place in random.permutation(len(items))[:25]]
    assert len(sampled) >= 200, {task: len(items) for task, items in by_task.items()}
    for item in sampled:
        right, frames = retell(item.task, item.question, item.options, told[item.video_id])
        assert right == {truth(item)}, (item.id, item.question, item.options)
        assert frames == shown(item), item.id
        assert item.evidence.kind == "exact"
        ordered = item.task == "RSR" or "to come into view" in item.question
        assert ("order_dependent" in item.flags) == ordered


def test_every_rejected_candidate_has_its_reason_and_the_funnel_adds_up(thirty):
    _, built = thirty
    letters_are_balanced(built.items)
    lines = [json.loads(line) for line in (built.folder / "audit.jsonl").read_text().splitlines()]
    for line in lines:
        assert line["reason"] in reasons_module.__all__
        assert line["message"]
        assert line["remedy"]
        assert line["candidate"]["question"]
    funnel = pd.read_csv(built.folder / "funnel.csv", keep_default_na=False)
    totals = funnel[funnel["reason"] == ""].astype({"kept": int})
    stages = totals.groupby("stage")[["entered", "dropped", "kept"]].sum()
    assert stages.loc["rows", "dropped"] == stages.loc["procedures", "dropped"] == 0
    order = ["evidence", "candidates", "filter", "quota", "distractors", "checks", "review", "letters"]
    for before, after in pairwise(order):
        assert stages.loc[before, "kept"] == stages.loc[after, "entered"], after
    assert stages.loc["candidates", "entered"] == len(built.items) + len(lines)
    counted = funnel[funnel["reason"] != ""].groupby("reason")["dropped"].sum().to_dict()
    assert counted == Counter(line["reason"] for line in lines)
    alone = sum(len(case.told["lesions"]) == 1 for case in cases(thirty[0]).values())
    assert counted["NothingToCompareError"] == alone, "one lesion is not the largest of several"


# -- the items of a split


@pytest.fixture(scope="module")
def test_split():
    config = Config(split="test")
    return config, *content(config, NOWHERE)


def test_every_item_of_the_test_split_is_right_and_worded_as_learnt(test_split):
    config, _, items = test_split
    told = cases(config)
    for item in items:
        right, frames = retell(item.task, item.question, item.options, told[item.video_id])
        assert right == {truth(item)}, (item.id, item.question)
        assert frames == shown(item), item.id
        assert re.fullmatch(ASKED[item.task], item.question), item.question
        assert item.evidence.kind == "exact"
        assert item.id.startswith(f"{item.metadata['procedure']}/{item.task}/")
        assert item.metadata["evidence_ratio"] == len(frames) / item.metadata["n_frames"]
        assert item.metadata["fps"] == 4
        assert len(item.metadata["lesions"]) == len(told[item.video_id].told["lesions"])
        flag = {"PR": "time_addressed", "RSR": "order_dependent"}.get(item.task, "order_free")
        assert item.flags == {flag}


def test_the_test_split_has_enough_of_each_task_and_even_answers(test_split):
    """Once on each video at most; exactly even but for the lesions' traits, which plans deal out."""
    _, _, items = test_split
    letters_are_balanced(items)
    assert max(Counter((item.video_id, item.task) for item in items).values()) == 1
    expected = {"Hist": 90, "Size": 90, "Site": 90, "LLS": 90, "LA": 120}
    assert Counter(item.task for item in items) == expected | dict.fromkeys(("RSR", "PR", "IR", "CPR"), 180)
    for task in TASKS:
        answers = Counter(truth(item) for item in items if item.task == task)
        if task in ("RSR", "PR", "IR", "CPR", "LA"):
            assert max(answers.values()) - min(answers.values()) <= 1, (task, answers)
        else:
            among = 6 if task in ("Hist", "LLS") else 4
            assert len(answers) == among
            assert max(answers.values()) < 2 * 90 / among, (task, answers)


@pytest.mark.parametrize("seed", range(3))
def test_windows_are_those_of_the_plan(seed):
    config = Config(split="train", n_videos=40, seed=seed)
    procedures, items = content(config, NOWHERE)
    plans = {procedure.video: procedure for procedure in procedures}
    seen = Counter()
    for item in items:
        plan = plans[item.video_id]
        windows = [(window.start_frame, window.end_frame) for window in item.evidence.windows]
        spans = {
            "LLS": [(one.start_frame, one.end_frame) for one in plan.lesions],
            "CPR": [(one.start_frame, one.end_frame) for one in plan.steps if one.name in item.question],
            "IR": [(one.start_frame, one.end_frame) for one in plan.instruments if one.name == truth(item)],
        }
        for task in ("Hist", "Size", "Site", "LA"):
            spans[task] = spans["LLS"]
        if item.task == "PR":
            (window,) = windows
            (phase,) = [p for p in plan.phases if p.start_frame < window[0] < window[1] < p.end_frame]
            assert plan.phase_names[plan.phases.index(phase)] == truth(item)
            assert min(window[0] - phase.start_frame, phase.end_frame - window[1]) >= 2
            assert window[1] - window[0] == 8
        elif item.task == "RSR":
            firsts = {}
            for step in plan.steps:
                firsts.setdefault(step.name, (step.start_frame, step.end_frame))
            assert windows == sorted(firsts[name] for name in item.options)
        else:
            assert windows == spans[item.task], item.id
        seen[item.task] += 1
    assert set(seen) == set(TASKS)


def test_lessons_and_items_are_the_same_questions(test_split):
    """Posed from the plan and built from the tracks: same words, answer, evidence; wrong options are fair."""
    config, procedures, items = test_split
    compared = Counter()
    for procedure in procedures[:60]:
        one, posed = config.of_video(procedure.index), {}
        names = dict.fromkeys(step.name for step in procedure.steps)
        varied = [
            dataclasses.replace(procedure, counted=True, repeated=step, asked_phase=n % 4, asked_onset=n % 4)
            for n, step in enumerate(itertools.islice(itertools.cycle(names), 4 * len(names)))
        ]
        random = np.random.default_rng(procedure.index)
        for task, plan, _ in itertools.product(TASKS, varied, range(12)):
            lesson = INQUIRIES[task].pose(one, plan, random)
            if lesson is not None:
                posed[lesson.question] = lesson
        for item in items:
            if item.video_id == procedure.video and item.question in posed:
                lesson = posed[item.question]
                assert lesson.truth == truth(item), item.id
                windows = [(window.start_frame, window.end_frame) for window in item.evidence.windows]
                assert sorted(lesson.spans) == windows, item.id
                if item.task not in ("CPR", "LA"):  # numbers: which neighbours are offered is drawn
                    assert set(item.options) <= {lesson.truth, *lesson.shown, *lesson.others}
                compared[item.task] += 1
    there = Counter(item.task for item in items if item.video_id in {p.video for p in procedures[:60]})
    for task in TASKS:  # a lesson's windows vary in length, those of items are two seconds long
        assert compared[task] == there[task] if task != "PR" else compared[task] > 0.5 * there[task], task


def test_most_questions_on_a_video_take_turns():
    for questions in (1, 2, 4):
        config = Config(split="train", n_videos=36, questions=questions)
        items = content(config, NOWHERE)[1]
        per_video = Counter(item.video_id for item in items)
        assert max(per_video.values()) == questions
        assert len(per_video) >= 36 - 8, "even answers may cost a video its only question, a count"
        tasks = Counter(item.task for item in items)
        assert set(tasks) == set(TASKS)
        assert max(tasks.values()) <= len(per_video) * questions / 3, tasks
        letters_are_balanced(items)


def test_splits_of_single_lesions_ask_nothing_about_several():
    for split in ("needle", "redundant"):
        items, audit = ask(Config(split=split), make_procedures(Config(split=split)), NOWHERE)
        assert {item.task for item in items} == set(TASKS) - {"LLS", "LA"}
        assert set(Counter(item.video_id for item in items).values()) <= {6, 7}
        assert not [entry for entry in audit.entries if entry.stage in ("rows", "procedures")]


@settings(max_examples=20, deadline=None)
@given(
    split=st.sampled_from(["train", "test", "needle", "redundant"]),
    n_videos=st.integers(1, 40),
    n_frames=st.integers(40, 4000),
    fps=st.sampled_from([0.3, 2, 4, 8, 29.97, 120]),
    ratio=st.floats(0.0003, 0.1),
    questions=st.integers(1, 9),
    seed=st.integers(0, 10_000),
)
def test_whatever_the_parameters_items_are_sound(split, n_videos, n_frames, fps, ratio, questions, seed):
    config = Config(
        split=split,
        n_videos=n_videos,
        seconds=n_frames / fps,
        fps=fps,
        evidence_ratio=ratio,
        questions=questions,
        seed=seed,
    )
    procedures, items = content(config, NOWHERE)
    plans = {procedure.video: procedure for procedure in procedures}
    assert len({item.id for item in items}) == len(items)
    per_video = Counter(item.video_id for item in items)
    assert max(per_video.values(), default=0) <= questions
    assert [item.video_id for item in items] == sorted(item.video_id for item in items)
    for item in items:
        assert len(set(item.options)) == len(item.options) == (2 if item.task == "RSR" else 4)
        assert item.evidence.windows
        for window in item.evidence.windows:
            assert 0 <= window.start_frame < window.end_frame <= plans[item.video_id].n_frames
        if item.task == "PR":
            assert truth(item) in PHASES
    if items:
        letters_are_balanced(items)


# -- without the video


MARGIN = 0.05


LESIONS = ("Hist", "Size", "Site", "LLS")


@cache
def planned(n_videos):
    return make_procedures(Config(split="train", n_videos=n_videos, seed=11))


def many(task, n_videos=None):
    """The questions of one task on thousands of procedures.

    Half of the procedures have a lesion of the kind that is asked about, and their colours are as even as
    chance makes them, which a classifier knows: a larger number makes that small.
    """
    n_videos = n_videos or (9000 if task in LESIONS else 3000)
    config = Config(split="train", n_videos=n_videos, seed=11)
    procedures = planned(n_videos)
    if task in LESIONS:
        procedures = [one for one in procedures if (len(one.lesions) > 1) == (task == "LLS")]
    return ask(config, procedures, NOWHERE, dataclasses.replace(build_config(config), tasks=(task,)))[0]


def test_many_questions_of_a_task_are_those_of_the_split():
    whole = content(Config(split="train", n_videos=60, seed=11), NOWHERE)[1]
    for task in TASKS:
        assert many(task, 60) == [item for item in whole if item.task == task]


def guesses(items, features, label):
    """Predictions for each item by a classifier fitted on other videos: the option of most probability."""
    texts = [features(item) for item in items]
    wanted = [label(item, item.letters.index(item.answer)) for item in items]
    videos = [item.video_id for item in items]
    right = np.zeros(len(items), dtype=bool)
    for fit, check in GroupKFold(5).split(texts, groups=videos):
        model = make_pipeline(
            CountVectorizer(binary=True, token_pattern=r"\S+", ngram_range=(1, 2)),
            LogisticRegression(C=0.1, max_iter=300),
        ).fit([texts[i] for i in fit], [wanted[i] for i in fit])
        classes = {name: place for place, name in enumerate(model.classes_)}
        for i, row in zip(check, model.predict_proba([texts[i] for i in check]), strict=True):
            offered = [label(items[i], place) for place in range(len(items[i].options))]
            best = max(offered, key=lambda name: row[classes[name]] if name in classes else 0.0)
            right[i] = best == wanted[i]
    return right


def option_set(item):
    """Question and options in no order, and the set as one word: what a reader could know by heart."""
    options = sorted(option.replace(" ", "_") for option in item.options)
    return " ".join([item.question, *(f"={option}" for option in options), "+".join(options)])


@pytest.mark.parametrize("task", TASKS)
def test_question_and_options_alone_tell_nothing(task):
    """Two one-sided tests at 5%: accuracy without the video is within five points of chance."""
    items = many(task)
    chance = 1 / len(items[0].options)
    by_text = guesses(items, option_set, lambda item, place: item.options[place])
    by_place = guesses(
        items,
        lambda item: " ".join(
            [
                item.question,
                *(f"{n}={o.replace(' ', '_')}" for n, o in zip(item.letters, item.options, strict=True)),
            ]
        ),
        lambda item, place: item.letters[place],
    )
    for right in (by_text, by_place):
        excess, error = right.mean() - chance, np.sqrt(chance * (1 - chance) / len(right))
        p_value = max(norm.sf((excess + MARGIN) / error), norm.cdf((excess - MARGIN) / error))
        assert p_value < 0.05, f"{task}: {right.mean():.3f}, chance {chance}, n {len(right)}, p {p_value:.3f}"


def test_a_leak_would_be_found():
    """The same classifier, where the question tells a part of the place: far from chance."""
    items = many("Site", 600)
    leaky = [dataclasses.replace(item, question=f"{item.question} {truth(item)[:7]}") for item in items]
    right = guesses(leaky, option_set, lambda item, place: item.options[place])
    assert right.mean() > 0.9


def test_options_beyond_every_answer_would_be_found():
    """The same classifier, where counts are offered that are never right: it knows them from the set."""
    random = np.random.default_rng(0)
    leaky = []
    for item in many("CPR", 1000):
        count = int(truth(item))
        lowest = int(random.integers(max(1, count - 3), count + 1))
        options = tuple(str(number) for number in range(lowest, lowest + 4))
        leaky.append(dataclasses.replace(item, options=options, answer="ABCD"[options.index(str(count))]))
    right = guesses(leaky, option_set, lambda item, place: item.options[place])
    assert right.mean() > 0.25 + 3 * MARGIN
