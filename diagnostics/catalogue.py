"""What there is to choose from: the configuration groups and a line on each option.

Reads the YAML files as text, so that listing them and checking a name costs no import.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

from diagnostics.errors import ConfigError
from diagnostics.strict import near_match

__all__ = ["GROUPS", "config_folder", "is_listing", "listing", "options", "rewrite_overrides"]

_PATHS = (
    "out",
    "data.path",
    "data.root",
    "data.evidence",
    "data.cache",
    "model.path",
    "exp.run",
    "exp.root",
    "benchmark_run",
    "reading.cache",
)

_FOLDERS = ("exp.folders.",)
"""Keys that begin so are paths too."""
_OF_RUNS = ("run", "runs", "beside")
"""What experiments on finished runs are about, which may be named without their group."""

_SWEEPS = ("-m", "--multirun")

_HYDRA_FLAGS = frozenset(
    {"config-dir", "config-path", "config-name", "package", "cfg", "info", "experimental-rerun", "cd"}
)
"""Options of Hydra's that take their value after an equals sign."""

GROUPS = ("exp", "model", "data", "sampling", "backend")

_EXAMPLES = """\
Examples
  python -m diagnostics +exp=attention_drift
  python -m diagnostics +exp=attention_drift model=qwen3_vl_8b data=jsonl data.path=my_questions.jsonl"""


def config_folder() -> Path:
    """The folder of the configuration groups: inside the installed package, or beside it in a checkout.

    Raises:
        ConfigError: neither is there.
    """
    package = Path(__file__).resolve().parent
    for folder in (package / "conf", package.parent / "conf"):
        if (folder / "config.yaml").is_file():
            return folder
    raise ConfigError(
        f"No configuration below {package}.", remedy="Install the package again: its YAML files are missing."
    )


def options(group: str, extra: Sequence[Path] = ()) -> dict[str, str]:
    """Each option of a group, and the first sentence of the comment that opens its file."""
    found: dict[str, str] = {}
    for root in (config_folder(), *extra):
        for path in sorted((root / group).glob("*.yaml")):
            found.setdefault(path.stem, _first_sentence(path))
    return found


def _first_sentence(path: Path) -> str:
    """Up to its full stop; a line without one is a title, unless the next goes on in lower case."""
    told = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        text = line.lstrip("# ").rstrip()
        if not line.startswith("#") or (told and text[:1].isupper()):
            break
        if "@package" not in line:
            told = f"{told} {text}".strip()
            if ". " in told:
                break
    return told.partition(". ")[0].removesuffix(".")


def is_listing(arguments: Sequence[str]) -> bool:
    """Whether nothing is asked for but what there is: no argument, or only folders with more of it."""
    joined = sum(argument.startswith("--config-dir=") for argument in arguments)
    apart = len(_config_dirs(arguments)) - joined  # their folder is an argument by itself
    return len(arguments) == joined + 2 * apart


def listing(arguments: Sequence[str] = ()) -> str:
    """Experiments, models, data sets and samplers with a line each, and two examples.

    Args:
        arguments: the command line; options in folders that `--config-dir` names are listed too.
    """
    titles = {
        "exp": "Experiments (+exp=...)",
        "model": "Models (model=...)",
        "data": "Data sets (data=...)",
        "sampling": "Samplers (sampling=...)",
    }
    blocks = ["Mechanistic diagnostics for video multimodal large language models"]
    for group, title in titles.items():
        entries = options(group, _config_dirs(arguments))
        width = max(len(name) for name in entries)
        lines = [f"  {name:<{width}}  {text}" for name, text in entries.items()]
        blocks.append("\n".join([title, *lines]))
    return "\n\n".join([*blocks, _EXAMPLES])


def rewrite_overrides(arguments: Sequence[str]) -> list[str]:
    """The command line as Hydra needs it.

    Plain values (`exp.key_fraction=0.5`, `out=DIR`) are made forced additions, so that a misspelt key
    reaches our strict conversion, which names the near match; Hydra's own message does not. `exp=` gets
    its plus sign. Unknown options of known groups are refused here, for the same reason. `out` moves what
    Hydra writes about a multirun along with the runs. `-m` may stand anywhere: it is moved to the end,
    since Hydra's parser takes overrides in one stretch only.

    Raises:
        ConfigError: a group has no such option, a launcher is not installed, or an argument is no setting.
    """
    extra = _config_dirs(arguments)
    swept = any(argument in _SWEEPS for argument in arguments)
    for before, argument in pairwise(["", *arguments]):
        _refuse_odd(before, argument)
    rewritten = []
    for argument in sorted(arguments, key=lambda given: given in _SWEEPS):
        key, separator, value = argument.partition("=")
        if key in _OF_RUNS:
            key = f"exp.{key}"
        if not separator or argument.startswith("-"):
            rewritten.append(argument)
            continue
        bare = key.lstrip("+~")
        if bare in GROUPS:
            _check_options(bare, value, extra)
            rewritten.append(f"+{bare}={value}" if bare == "exp" else argument)
        elif key == bare and "/" not in key and not key.startswith("hydra."):
            path = key in _PATHS or key.startswith(_FOLDERS)
            rewritten.append(f"++{key}={_quoted(value, swept) if path else value}")
        else:
            _check_launcher(bare, value)
            rewritten.append(argument)
        if bare == "out":
            rewritten.append("hydra.sweep.dir=${out}/.multirun")
    return rewritten


def _quoted(value: str, swept: bool) -> str:
    """A path with marks of Hydra's grammar in it, as a quoted string; under `-m` commas separate several."""
    marks = set("=(){}[]:\\ '\"") | (set() if swept else {","})
    if not set(value) & marks or (swept and "," in value) or value[:1] in "'\"" or "${" in value:
        return value
    return "'" + value.replace("'", "\\'") + "'"


def _check_launcher(key: str, value: str) -> None:
    plugin = "hydra_plugins.hydra_submitit_launcher"
    if key != "hydra/launcher" or value not in ("slurm", "submitit_slurm", "submitit_local"):
        return
    if find_spec("hydra_plugins") is None or find_spec(plugin) is None:
        raise ConfigError(
            f"hydra/launcher={value} needs the SLURM extra.", remedy='Install it: pip install ".[slurm]".'
        )


def _config_dirs(arguments: Sequence[str]) -> list[Path]:
    folders = []
    for position, argument in enumerate(arguments):
        if argument in ("--config-dir", "-cd") and position + 1 < len(arguments):
            folders.append(Path(arguments[position + 1]))
        elif argument.startswith("--config-dir="):
            folders.append(Path(argument.partition("=")[2]))
    return folders


def _refuse_odd(before: str, argument: str) -> None:
    """What Hydra would take for something else: a bare word, a setting with dashes, spaces around `=`."""
    key, separator, value = argument.partition("=")
    if argument.startswith("-"):
        name = key.lstrip("-")
        if separator and name not in _HYDRA_FLAGS:
            plus = "+" if name == "exp" else ""
            raise ConfigError(
                f"There is no option {key}.", remedy=f"Write {plus}{name}={value}, without dashes."
            )
    elif not separator:
        names_value = before.startswith("-") and before not in _SWEEPS
        if not names_value and not argument.startswith("~"):
            known = argument in options("exp")
            remedy = (
                f"Write +exp={argument}." if known else "Write KEY=VALUE, without spaces around the sign."
            )
            raise ConfigError(f"{argument!r} is no setting.", remedy=remedy)
    elif key != key.strip():
        raise ConfigError(
            f"There is a space in {argument!r}.", remedy=f"Write {key.strip()}={value.strip()}."
        )


def _check_options(group: str, value: str, extra: Sequence[Path]) -> None:
    if any(mark in value for mark in "$({["):
        return  # an interpolation or a sweep function: Hydra resolves it
    known = options(group, extra)
    for name in value.split(","):
        if name.strip() not in known:
            raise ConfigError(
                f"There is no {group}={name.strip()}.",
                remedy=near_match(name.strip(), list(known)),
            )
