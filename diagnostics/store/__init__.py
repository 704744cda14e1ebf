"""What a run leaves on disk: records, tensors, manifest, summary, tables, thumbnails, log.

`RunFolder` is the door for whoever measures. Whoever reads a run takes `read_records`, `read_tensors`,
`read_manifests` and `read_summary`, or all but the tensors with `open_finished`. Nothing here imports torch,
and nothing is pickled: JSON, HDF5, CSV and pictures only.
"""

from diagnostics.store.canonical import (
    Difference,
    Pair,
    canonical_json,
    condition_id,
    config_hash,
    differing_keys,
    pair_file_name,
    pair_stem,
    plain,
)
from diagnostics.store.finished import FinishedRun, find_run, find_runs, load_summary, open_finished
from diagnostics.store.manifest import Attempt, Counts, Machine, Manifest, read_manifests
from diagnostics.store.record_log import all_records, read_records
from diagnostics.store.records import VOLATILE, Failure, Record, comparable, from_json, latest, to_json
from diagnostics.store.run_folder import RunFolder, tensor_path
from diagnostics.store.run_log import log_path, run_log
from diagnostics.store.sharding import MergeCheck, merge_check, shard_of
from diagnostics.store.summary import Metric, Occurrences, Row, Summary, read_summary
from diagnostics.store.tensor_parts import (
    Answer,
    Attention,
    Control,
    PairTensors,
    Rows,
    Similarity,
    Tokens,
    Units,
)
from diagnostics.store.tensors import TENSOR_SCHEMA, read_tensors, write_tensors

__all__ = [
    "TENSOR_SCHEMA",
    "VOLATILE",
    "Answer",
    "Attempt",
    "Attention",
    "Control",
    "Counts",
    "Difference",
    "Failure",
    "FinishedRun",
    "Machine",
    "Manifest",
    "MergeCheck",
    "Metric",
    "Occurrences",
    "Pair",
    "PairTensors",
    "Record",
    "Row",
    "Rows",
    "RunFolder",
    "Similarity",
    "Summary",
    "Tokens",
    "Units",
    "all_records",
    "canonical_json",
    "comparable",
    "condition_id",
    "config_hash",
    "differing_keys",
    "find_run",
    "find_runs",
    "from_json",
    "latest",
    "load_summary",
    "log_path",
    "merge_check",
    "open_finished",
    "pair_file_name",
    "pair_stem",
    "plain",
    "read_manifests",
    "read_records",
    "read_summary",
    "read_tensors",
    "run_log",
    "shard_of",
    "tensor_path",
    "to_json",
    "write_tensors",
]
