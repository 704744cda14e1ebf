"""The pipeline from annotation tracks to a question file, stage by stage.

MedHorizon (arXiv 2605.06537), sections 3.2 and 6.2 to 6.4. `make_questions` is the recipe; `build` reads
the files before it and writes them after it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from diagnostics.data.build.annotations import Procedure
from diagnostics.data.build.audit import Audit
from diagnostics.data.build.candidates import Candidate, generate
from diagnostics.data.build.distractors import add_distractors
from diagnostics.data.build.evidence import retrieve
from diagnostics.data.build.filters import check_items, filter_candidates
from diagnostics.data.build.letters import shuffle
from diagnostics.data.build.normalise import Probe, facts_of, normalise
from diagnostics.data.build.quotas import thin
from diagnostics.data.build.review import Verdicts, apply_review, read_review, write_review
from diagnostics.data.build.rewriting import Endpoint, rewrite
from diagnostics.data.build.rows import Annotations, judge_rows, read_annotations
from diagnostics.data.build.settings import TASKS, Config
from diagnostics.data.build.spaces import Spaces
from diagnostics.data.build.tracks import object_rows, track_files
from diagnostics.data.items import Evidence, Item, Window, option_letter
from diagnostics.data.jsonl import write_records
from diagnostics.data.paths import existing_folder
from diagnostics.errors import ConfigError
from diagnostics.store.atomic import publish, write_text
from diagnostics.store.manifest import package_versions
from diagnostics.video.reading import FrameReader

__all__ = ["FILES", "Built", "build", "build_in_memory", "make_questions", "to_item"]

FILES = {
    "questions": "questions.jsonl",
    "audit": "audit.jsonl",
    "review": "review.csv",
    "funnel": "funnel.csv",
    "manifest": "build.json",
}
"""What a build writes, and below which name."""


@dataclass(frozen=True)
class Built:
    """A benchmark.

    Attributes:
        items: its questions.
        audit: what was dropped, and the counts of the funnel.
        root: the folder that the question file's video paths start from (`data.root=`).
        folder: where the files are.
    """

    items: list[Item]
    audit: Audit
    root: Path
    folder: Path


def make_questions(
    annotations: Annotations,
    probe: Probe,
    config: Config,
    audit: Audit,
    *,
    endpoint: Endpoint | None = None,
    kept_replies: Path | None = None,
) -> list[Candidate]:
    """Every stage up to the review: the questions as a person would see them.

    Args:
        annotations: from `rows.read_annotations`.
        probe: opens a video.
        config: how questions are made.
        audit: takes what is dropped, and counts.
        endpoint, kept_replies: for rewriting, where wanted (`rewriting.rewrite`).
    """
    procedures = normalise(annotations.procedures, probe, config, audit)
    spaces = Spaces(annotations.spaces, procedures)
    findings = retrieve(procedures, spaces, config)
    audit.count_tasks("evidence", (finding.task for finding in findings))
    candidates = generate(findings, config)
    audit.count_tasks("candidates", (candidate.task for candidate in candidates))
    sound = filter_candidates(candidates, config, audit)
    taken = thin(sound, config, audit)
    optioned = add_distractors(taken, config, audit)
    checked = check_items(optioned, config, audit)
    if endpoint is not None and kept_replies is not None:
        checked = rewrite(checked, endpoint, kept_replies, config, audit)
    return checked


def build(
    tracks: Sequence[Path | str],
    out: Path | str,
    config: Config | None = None,
    *,
    root: Path | str | None = None,
    review: Path | str | None = None,
    endpoint: Endpoint | None = None,
    probe: Probe | None = None,
    timeout_seconds: float = 300.0,
) -> Built:
    """Build a benchmark and write its files (`FILES`) into `out`.

    Args:
        tracks: track files, or folders of them (docs/build.md).
        out: a folder; made where it is missing. Files of an earlier build in it are replaced.
        config: how questions are made.
        root: what video paths in the tracks start from; each track file's own folder where None.
        review: a filled-in review file; `out/review.csv` where it is there and None is given.
        endpoint: rewrites the questions, where given.
        probe: opens a video; by default its index is read in a process that can be killed.
        timeout_seconds: for opening one video.

    Raises:
        ConfigError: `out` is a file.
        DataFileError: a track or review file cannot be used as a whole.
        RunError: the endpoint cannot be reached.
    """
    config = config or Config()
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file.", remedy="Name a folder after --out.")
    files = track_files([Path(path) for path in tracks])
    home = None if root is None else existing_folder(Path(root), what="root of the videos")
    audit = Audit()
    annotations = read_annotations(files, home, audit)
    folder.mkdir(parents=True, exist_ok=True)
    own = folder / FILES["review"]
    given = Path(review) if review is not None else own if own.exists() else None
    with ExitStack() as stack:
        if probe is None:
            reader = stack.enter_context(FrameReader(timeout_seconds=timeout_seconds))

            def probe_file(video: Path) -> Any:
                return facts_of(reader.index(video))

            probe = probe_file
        candidates = make_questions(
            annotations, probe, config, audit, endpoint=endpoint, kept_replies=folder / "rewrites.json"
        )
    verdicts: Verdicts = read_review(given, audit) if given is not None else {}
    accepted = apply_review(candidates, verdicts, config, audit)
    finished = shuffle(accepted, config.seed, audit)
    base = _common_root(files, home, annotations.procedures)
    items = [to_item(candidate, base, config) for candidate in finished]
    with publish(folder / FILES["questions"]) as temporary:
        write_records(temporary, items, base)
    with publish(folder / FILES["audit"]) as temporary:
        audit.write(temporary)
    write_review(own, candidates, finished, verdicts)
    write_text(folder / FILES["funnel"], audit.funnel().to_csv(index=False, lineterminator="\n"))
    write_text(folder / FILES["manifest"], _manifest(files, base, config, endpoint, len(items)))
    return Built(items, audit, base, folder)


def build_in_memory(
    whole: Mapping[str, Any], root: Path, probe: Probe, config: Config | None = None
) -> tuple[list[Item], Audit]:
    """The items of annotations that are no file: for generators of procedures.

    Args:
        whole: an object in the JSON form of docs/build.md.
        root: what its video paths start from.
        probe: what each video holds.
        config: how questions are made.
    """
    config, audit = config or Config(), Audit()
    annotations = judge_rows(object_rows(whole, "annotations"), root, audit)
    finished = shuffle(make_questions(annotations, probe, config, audit), config.seed, audit)
    return [to_item(candidate, root, config) for candidate in finished], audit


def to_item(candidate: Candidate, root: Path, config: Config) -> Item:
    """The finished question as an item of the project, its evidence in seconds and frames.

    Args:
        candidate: with shuffled options.
        root: a folder above its video.
        config: says what kind of evidence the windows are.
    """
    finding, rule = candidate.finding, TASKS[candidate.task]
    procedure, facts = finding.procedure, finding.procedure.real
    windows = []
    for start, end in finding.windows:
        first, last = facts.frames(start, end)
        if last > first:  # a stretch between two frames shows nothing
            windows.append(Window(round(start, 6), round(end, 6), first, last))
    kind = config.kind(candidate.task)
    metadata: dict[str, Any] = {
        "source": procedure.source,
        "procedure": procedure.name,
        "task_title": rule.title,
        "subject": dict(finding.subject),
        "duration_seconds": round(facts.duration, 6),
        "n_frames": facts.n_frames,
    }
    if candidate.rewritten_from is not None:
        metadata["rewritten_from"] = candidate.rewritten_from
    return Item(
        id=candidate.id,
        video=procedure.video,
        video_id=procedure.video.relative_to(root.resolve()).as_posix(),
        question=candidate.question,
        options=candidate.options,
        answer=option_letter(candidate.options.index(candidate.answer)),
        task=candidate.task,
        task_family=rule.family,
        evidence=Evidence(() if kind == "global" else tuple(windows), kind),
        flags=frozenset({"order_dependent" if finding.order_dependent else rule.flag}),
        metadata=metadata,
    )


def _common_root(files: Sequence[Path], root: Path | None, procedures: Sequence[Procedure]) -> Path:
    """The given root; else the deepest folder above every track file's videos."""
    if root is not None:
        return root.resolve()
    folders = {str(path.resolve().parent) for path in files}
    folders |= {str(procedure.video.parent) for procedure in procedures} if len(folders) > 1 else set()
    return Path(os.path.commonpath(sorted(folders)))


def _manifest(
    files: Sequence[Path], root: Path, config: Config, endpoint: Endpoint | None, n_items: int
) -> str:
    """What the benchmark was built from and how: enough to build it again."""
    told = {
        "tracks": {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files},
        "root": str(root),
        "config": asdict(config),
        "endpoint": None if endpoint is None else asdict(endpoint),
        "items": n_items,
        "versions": package_versions(),
    }
    return json.dumps(told, indent=2, ensure_ascii=False) + "\n"
