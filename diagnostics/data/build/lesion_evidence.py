"""Evidence of the lesion families: Site, Hist, Size, LLS, LA."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from diagnostics.data.build.annotations import SAME_TIME, Lesion, Procedure
from diagnostics.data.build.findings import Ask, Finding, ordinal
from diagnostics.data.build.reasons import NothingToCompareError, SubjectNotAskedError
from diagnostics.data.build.settings import Config
from diagnostics.data.build.spaces import Labels, Numbers, Spaces

__all__ = ["attributes", "largest", "lesion_count"]

_ATTRIBUTES = {"Site": ("site", "sites"), "Hist": ("histology", "histologies"), "Size": ("size", "sizes")}


def attributes(ask: Ask) -> Iterator[Finding]:
    """Site, Hist, Size: the attribute of each lesion, seen in its windows."""
    task, procedure, spaces, config = ask.task, ask.procedure, ask.spaces, ask.config
    attribute, name = _ATTRIBUTES[task]
    lesions = procedure.lesions
    if not any(attribute in lesion.attributes for lesion in lesions):
        return
    for number, lesion in enumerate(lesions):
        value = lesion.attributes.get(attribute)
        windows = _lesion_windows(lesion, config)
        seen_too = {
            str(other.attributes[attribute])
            for other in lesions
            if other is not lesion and attribute in other.attributes
            if any(other.visible(*window) for window in windows)
        }
        together = [
            other.name
            for other in lesions
            if other is not lesion and abs(other.appears - lesion.appears) <= SAME_TIME
        ]
        yield Finding(
            task,
            procedure,
            subject={"lesion": lesion.name},
            right=() if value is None else (value,),
            space=_attribute_space(spaces, procedure, name, value, config),
            windows=windows,
            others=frozenset(seen_too) - {str(value)},
            near=_texts(other.attributes.get(attribute) for other in lesions if other is not lesion),
            doubt=_lesion_doubt(procedure),
            ambiguous=f"lesion {together[0]!r} comes into view at the same time" if together else "",
            excluded=_one_of_several(procedure) if config.lesion_subjects == "only" else None,
            order_dependent=len(lesions) > 1,
            names={
                "lesion": "lesion" if len(lesions) == 1 else f"{ordinal(number + 1)} lesion to come into view"
            },
        )


def _one_of_several(procedure: Procedure) -> SubjectNotAskedError | None:
    if len(procedure.lesions) == 1:
        return None
    return SubjectNotAskedError(
        f"The procedure has {len(procedure.lesions)} lesions, and only single ones are asked about.",
        remedy="Nothing to do, or lesion_subjects=any.",
    )


def _lesion_windows(lesion: Lesion, config: Config) -> tuple[tuple[float, float], ...]:
    if config.lesion_windows == "first":
        return lesion.windows[:1]
    if config.lesion_windows == "longest":
        return (max(lesion.windows, key=lambda window: window[1] - window[0]),)
    return lesion.windows


def _attribute_space(
    spaces: Spaces, procedure: Procedure, name: str, value: str | float | None, config: Config
) -> Labels | Numbers:
    declared = spaces.declared(procedure.source, name)
    if name == "sizes" and declared is not None:
        return Labels(declared, ordered=True)
    if isinstance(value, float):
        return Numbers(config.size_step, lowest=SAME_TIME, unit=config.size_unit)
    return spaces.of(procedure.source, name)


def _texts(values: Iterator[str | float | None]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(value) for value in values if value is not None))


def _lesion_doubt(procedure: Procedure) -> str:
    return "a row about lesions was dropped" if procedure.lesions_doubted else ""


def _union(procedure: Procedure) -> tuple[tuple[float, float], ...]:
    """All lesions' windows, joined where they touch."""
    joined: list[tuple[float, float]] = []
    for low, high in sorted(window for lesion in procedure.lesions for window in lesion.windows):
        if joined and low <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    return tuple(joined)


def largest(ask: Ask) -> Iterator[Finding]:
    """LLS: an attribute of the largest of several lesions, seen in the union of all of them."""
    task, procedure, spaces, config = ask.task, ask.procedure, ask.spaces, ask.config
    lesions, attribute = procedure.lesions, config.largest_asks
    if not any("size" in lesion.attributes for lesion in lesions):
        return
    order = spaces.declared(procedure.source, "sizes")
    ranks = [_rank(lesion.attributes.get("size"), order) for lesion in lesions]
    right: tuple[str, ...] = ()
    if None not in ranks:  # of an unmeasured lesion nobody can say that it is not the largest
        known = [rank for rank in ranks if rank is not None]
        largest = [lesion for lesion, rank in zip(lesions, known, strict=True) if rank == max(known)]
        if all(attribute in lesion.attributes for lesion in largest):
            right = _texts(lesion.attributes[attribute] for lesion in largest)
    name = {"site": "sites", "histology": "histologies", "size": "sizes"}.get(attribute, attribute)
    yield Finding(
        task,
        procedure,
        subject={"attribute": attribute},
        right=right,
        space=_attribute_space(spaces, procedure, name, None, config),
        windows=_union(procedure),
        near=_texts(lesion.attributes.get(attribute) for lesion in lesions),
        doubt=_lesion_doubt(procedure),
        excluded=None
        if len(lesions) > 1
        else NothingToCompareError("The procedure has one lesion.", remedy="Nothing to do."),
        names={"attribute": config.shown(attribute)},
    )


def _rank(size: str | float | None, order: Sequence[str] | None) -> float | None:
    if isinstance(size, str):
        return float(order.index(size)) if order is not None else None
    return size


def lesion_count(ask: Ask) -> Iterator[Finding]:
    """LA: how many lesions there are."""
    task, procedure = ask.task, ask.procedure
    if procedure.lesions or procedure.lesions_doubted:
        yield Finding(
            task,
            procedure,
            subject={},
            right=(float(len(procedure.lesions)),) if procedure.lesions else (),
            space=Numbers(1.0, lowest=1.0),
            windows=_union(procedure),
            doubt=_lesion_doubt(procedure),
        )
