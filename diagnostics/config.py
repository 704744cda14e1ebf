"""The configuration of a run. `DictConfig` ends here: nothing below sees one.

Each room declares the frozen dataclass of its own parameters (a loader, a sampler, an experiment);
`run_config` converts the composed configuration into them, strictly and once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator
from pydantic.dataclasses import dataclass

from diagnostics.data.subset import SubsetConfig
from diagnostics.errors import ConfigError
from diagnostics.models.config import BackendConfig, ModelConfig
from diagnostics.own_source import source_sha256
from diagnostics.store.canonical import config_hash
from diagnostics.strict import STRICT, from_mapping, near_match

__all__ = [
    "NOT_RESULTS",
    "DataConfig",
    "ReadingConfig",
    "RunConfig",
    "SamplingConfig",
    "ShardConfig",
    "run_config",
]

NOT_RESULTS = frozenset(
    {
        "out",
        "threads",
        "thumbnails",
        "shard",
        "benchmark_run",
        "reading.timeout_seconds",
        "reading.workers",
        "reading.cache",
        "reading.cache_gib",
        "model.device",
        "model.device_map",
        "data.cache",
        "backend.sharing",
        "backend.together",
        "backend.batch",
        # Of a served model: where it is and how it is asked, not which one. Shards of a run may each have a
        # server of their own, and a server that comes back has another port; who answered is in the manifest.
        "backend.base_url",
        "backend.key_env",
        "backend.concurrency",
        "backend.timeout_seconds",
        "backend.max_retries",
        "backend.backoff_seconds",
        "backend.longest_wait_seconds",
        "backend.input_price",
        "backend.output_price",
        "backend.in_flight",
        "backend.max_model_len",
        "backend.tensor_parallel",
        "backend.gpu_memory_utilization",
        "backend.kv_cache_gib",
        "backend.eager",
    }
)
"""Keys that cannot change results: they take no part in the configuration's hash."""


@dataclass(frozen=True, config=STRICT)
class ReadingConfig:
    """How video files are read.

    Attributes:
        reader: `pyav`, `decord`, `torchcodec`, or the dotted name of a module with a reader.
        timeout_seconds: for one request; then the reading process is killed.
        workers: reading processes.
        max_side: shrink frames while reading so that the longer side is this; None keeps them.
        cache: folder where decoded frames are kept between runs (`video.frame_cache`); None keeps none.
        cache_gib: what they may take there together, in GiB.
    """

    reader: str = "pyav"
    timeout_seconds: Annotated[float, Field(gt=0)] = 300.0
    workers: PositiveInt = 1
    max_side: Annotated[int, Field(ge=16)] | None = None
    cache: str | None = None
    cache_gib: Annotated[float, Field(gt=0)] = 20.0


@dataclass(frozen=True, config=STRICT)
class ShardConfig:
    """Which part of a run this process measures: the videos whose id hashes to `index` of `count`."""

    index: NonNegativeInt = 0
    count: PositiveInt = 1

    @model_validator(mode="after")
    def _one_of_them(self) -> ShardConfig:
        if self.index >= self.count:
            raise ValueError(f"shards are counted from 0: the last of {self.count} is {self.count - 1}")
        return self


@dataclass(frozen=True, config=STRICT)
class _Root:
    threads: PositiveInt | None
    thumbnails: NonNegativeInt


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """A data set: its label, the module that loads it, that module's parameters, and which items."""

    name: str
    loader: str
    parameters: dict[str, Any]
    subset: SubsetConfig


@dataclasses.dataclass(frozen=True)
class SamplingConfig:
    """A sampler: its module and that module's parameters."""

    rule: str
    parameters: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """All of it, converted.

    Attributes:
        experiment: name of the module below `diagnostics.experiments`.
        exp: that module's parameters, a plain mapping until the experiment converts it.
        thumbnails: small pictures saved of an item, shared among its conditions.
        resolved: the whole configuration as plain data, for the manifest and the hash.
    """

    experiment: str
    exp: dict[str, Any]
    model: ModelConfig
    data: DataConfig
    sampling: SamplingConfig
    backend: BackendConfig
    reading: ReadingConfig
    shard: ShardConfig
    out: str | None
    threads: int | None
    thumbnails: int
    benchmark_run: str | None
    resolved: dict[str, Any]

    def using(self, groups: Collection[str]) -> RunConfig:
        """The same for an experiment that reads these groups only: the others are no part of what it is, so
        they are left out of the manifest, the hash and the folder's name."""
        kept = {key: value for key, value in self.resolved.items() if key in groups or key == "out"}
        return dataclasses.replace(self, resolved=kept)

    @property
    def hash(self) -> str:
        """Of everything that can change results."""
        return config_hash(self.resolved, ignore=NOT_RESULTS)

    def folder(self, *, multirun: bool) -> Path:
        """Where the run lands: `out` itself, or a folder of its own below it under `-m`."""
        named = [self.resolved[group]["name"] for group in ("model", "data") if group in self.resolved]
        run = "-".join([*named, self.hash])
        if self.out is None:
            return Path("outputs") / self.experiment / run
        return Path(self.out) / run if multirun else Path(self.out)


_KEYS = (
    "exp", "model", "data", "sampling", "backend", "reading", "shard",
    "out", "threads", "thumbnails", "benchmark_run",
)  # fmt: skip
_FAMILY_SOURCE, _PROBE_SOURCES = "family_sha256", "probes_sha256"
"""Of the files behind `model.family` and `exp.probes`: no settings, but part of what a run is."""
_FOR_DATA = "for_data"
"""Values that an experiment's YAML file has for one kind of data: its other keys look them up."""


def run_config(values: Mapping[str, Any]) -> RunConfig:
    """Convert the composed configuration.

    Raises:
        ConfigError: no experiment was chosen, a key is unknown (the near match is named), a value is
            missing or has the wrong type.
    """
    values = {key: value for key, value in values.items() if key != _FOR_DATA}
    for key in values:
        if key not in _KEYS:
            raise ConfigError(f"Unknown key {key!r}.", remedy=near_match(key, _KEYS))
    if not values.get("exp", {}).get("name"):
        raise ConfigError("No experiment was chosen.", remedy="Add +exp=attention_drift.")
    exp, data, sampling = (dict(values[group]) for group in ("exp", "data", "sampling"))
    exp.pop(_PROBE_SOURCES, None)
    _refuse_missing(values)
    subset = {field.name: data.pop(field.name) for field in _fields(SubsetConfig) if field.name in data}
    name = data.pop("name")
    root = {
        "threads": values["threads"],
        "thumbnails": values.get("thumbnails", 0),
    }  # older manifests have none
    data.pop("instruction", None)  # the backend's configuration has taken it over
    model = {key: value for key, value in values["model"].items() if key != _FAMILY_SOURCE}
    return RunConfig(
        experiment=exp.pop("name"),
        exp=exp,
        model=from_mapping(ModelConfig, model, "model"),
        data=DataConfig(
            name=name,
            loader=data.pop("loader", name),
            parameters=data,
            subset=from_mapping(SubsetConfig, subset, "data"),
        ),
        sampling=SamplingConfig(rule=sampling.pop("rule"), parameters=sampling),
        backend=_backend(values["backend"]),
        reading=from_mapping(ReadingConfig, values["reading"], "reading"),
        shard=from_mapping(ShardConfig, values.get("shard", {}), "shard"),  # older manifests have none
        out=None if values["out"] is None else str(values["out"]),
        **dataclasses.asdict(from_mapping(_Root, root, "(root)")),
        benchmark_run=None if values.get("benchmark_run") is None else str(values["benchmark_run"]),
        resolved=_plain(_with_sources(values)),
    )


def _with_sources(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """With the hashes of a person's own files, where they are named; a stored configuration has them already,
    of the files that measured."""
    exp, model = dict(values["exp"]), dict(values["model"])
    if model.get("family") is not None and _FAMILY_SOURCE not in model:
        digest = source_sha256(str(model["family"]))
        if digest is not None:
            model[_FAMILY_SOURCE] = digest
    probes = exp.get("probes")
    if probes and not isinstance(probes, str) and _PROBE_SOURCES not in exp:
        exp[_PROBE_SOURCES] = {str(name): source_sha256(str(name)) for name in probes}
    return {**values, "exp": exp, "model": model}


def _backend(values: Mapping[str, Any]) -> BackendConfig:
    """What every engine is told, and the rest as its own parameters."""
    every = {field.name for field in _fields(BackendConfig)} - {"parameters"}
    own = {key: value for key, value in values.items() if key not in every}
    shared = {key: value for key, value in values.items() if key in every}
    return from_mapping(BackendConfig, {**shared, "parameters": own}, "backend")


def _fields(config: type) -> tuple[dataclasses.Field, ...]:
    return dataclasses.fields(config)


def _refuse_missing(values: Mapping[str, Any]) -> None:
    for group, entries in values.items():
        if isinstance(entries, Mapping):
            for key, value in entries.items():
                if value == "???":
                    raise ConfigError(
                        f"{group}.{key} must be given.", remedy=f"Add {group}.{key}=... to the command line."
                    )


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _plain(value) if isinstance(value, Mapping) else value for key, value in values.items()}
