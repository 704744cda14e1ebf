"""`python -m diagnostics.data.build TRACKS... --out DIR`: questions from annotated procedures."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.markup import escape

from diagnostics.data.build.audit import funnel_table
from diagnostics.data.build.pipeline import FILES, build
from diagnostics.data.build.rewriting import Endpoint
from diagnostics.data.build.settings import Config
from diagnostics.errors import ConfigError, DiagnosticsError
from diagnostics.strict import from_mapping

__all__ = ["main"]

_NOTHING_BUILT = 1
_CANNOT_RUN = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the benchmark, show the funnel, and say what to run next.

    Returns:
        The exit status: 0, 1 where no question came out, 2 where the build cannot start or go on.
    """
    given = _parser().parse_args(arguments)
    console = Console()
    try:
        config = from_mapping(Config, _settings(given.config, given.set), "build")
        endpoint = None
        if given.rewrite_url or given.rewrite_model:
            if not (given.rewrite_url and given.rewrite_model):
                raise ConfigError("--rewrite-url and --rewrite-model go together.", remedy="Give both.")
            endpoint = Endpoint(given.rewrite_url, given.rewrite_model)
        with console.status("Building"):
            built = build(
                given.tracks,
                given.out,
                config,
                root=given.root,
                review=given.review,
                endpoint=endpoint,
                timeout_seconds=given.timeout_seconds,
            )
    except DiagnosticsError as error:
        Console(stderr=True).print(f"[bold red]error:[/] {escape(str(error))}")
        return _CANNOT_RUN
    console.print(funnel_table(built.audit))
    for name, file in FILES.items():
        console.print(f"{name:<10} {escape(str(built.folder / file))}", soft_wrap=True)
    if not built.items:
        Console(stderr=True).print(
            "[bold red]error:[/] No question came out; the audit file has the reasons."
        )
        return _NOTHING_BUILT
    questions = built.folder / FILES["questions"]
    console.print(
        f"\n{len(built.items)} questions. Next: fill in the review and run this command again, or\n"
        f"  python -m diagnostics +exp=evidence_sparsity data=jsonl data.path={escape(str(questions))} "
        f"data.root={escape(str(built.root))}",
        soft_wrap=True,
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m diagnostics.data.build", description=__doc__)
    parser.add_argument(
        "tracks", nargs="+", type=Path, help="track files (.csv, .json, .jsonl) or folders of them"
    )
    parser.add_argument("--out", required=True, type=Path, help="folder for the questions and the audit")
    parser.add_argument("--root", type=Path, help="folder that video paths start from (the track file's own)")
    parser.add_argument("--config", type=Path, help="a YAML file of settings (docs/build.md)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="one setting; may be repeated"
    )
    parser.add_argument("--review", type=Path, help="a filled-in review file (OUT/review.csv)")
    parser.add_argument("--rewrite-url", help="an OpenAI-compatible endpoint, up to /v1")
    parser.add_argument("--rewrite-model", help="the model's name there")
    parser.add_argument("--timeout-seconds", type=float, default=300.0, help="for opening one video")
    return parser


def _settings(path: Path | None, overrides: Sequence[str]) -> dict[str, Any]:
    """Settings of the file, then those of the command line.

    Raises:
        ConfigError: the file is missing or no mapping, or an override has no `=`.
    """
    settings: dict[str, Any] = {}
    if path is not None:
        if not path.is_file():
            raise ConfigError(f"There is no file {path}.", remedy="Check the path after --config.")
        try:
            read = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        except yaml.YAMLError as error:
            raise ConfigError(f"{path} is not YAML: {error}.", remedy="Correct it.") from error
        if not isinstance(read, dict):
            raise ConfigError(f"{path} holds no mapping.", remedy="Write `key: value` lines.")
        settings |= read
    for override in overrides:
        key, separator, value = override.partition("=")
        if not separator:
            raise ConfigError(f"--set {override} has no '='.", remedy="Write --set key=value.")
        settings[key] = yaml.safe_load(value)
    return settings


if __name__ == "__main__":
    sys.exit(main())
