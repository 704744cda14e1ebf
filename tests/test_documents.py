"""README, docs and the papers beside them: links lead somewhere, commands compose, lists are whole."""

from __future__ import annotations

import ast
import importlib
import itertools
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from diagnostics.catalogue import GROUPS, config_folder, options, rewrite_overrides
from diagnostics.config import run_config
from diagnostics.data import loader
from diagnostics.errors import ConfigError
from diagnostics.run import checked
from diagnostics.strict import from_mapping

from .finished_runs import write_run

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("diagnostics/**/*.md")])
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]

_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


# Links


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives a page's headings."""
    found: dict[str, int] = {}
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    for title in re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        found[slug] = found.get(slug, -1) + 1
        if found[slug]:
            found[f"{slug}-{found[slug]}"] = 0
    return set(found)


def broken_links(page: Path) -> list[str]:
    text = re.sub(r"`[^`\n]*`", "", _FENCED.sub("", page.read_text(encoding="utf-8")))
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            broken.append(target)
    return broken


@pytest.mark.parametrize("name", NAMES)
def test_every_link_leads_somewhere(name: str) -> None:
    assert broken_links(ROOT / name) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One `thing` (of 2)\n[a](#one-thing-of-2) [b](#two) [c](page.md) [d](gone.md) [e](https://x.org/y)\n"
        "`[f](code.md)`\n```\n[g](code.md)\n```\n"
    )
    assert broken_links(page) == ["#two", "gone.md"]


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, ahead = set[Path](), [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        reached.add(page)
        targets = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
        there = {(page.parent / target).resolve() for target in targets if target.endswith(".md")}
        ahead += [path for path in there - reached if path.exists()]
    assert set(PAGES) <= reached


# Commands


def commands(text: str) -> Iterator[list[str]]:
    """The arguments of every `python -m diagnostics ...` of a page, placeholders taken out."""
    joined = re.sub(r"\\\n\s*", " ", text)
    for written in re.findall(r"python -m diagnostics ([^`\n]+)", joined):
        arguments = re.split(r"\s#|\s>\s|\s\|\s", written)[0]
        if "=" in arguments:
            yield settled(shlex.split(arguments))


def fragments(text: str) -> Iterator[list[str]]:
    """Settings that stand alone in a page's tables and sentences, such as `model=tiny sampling.budget=8`."""
    for written in re.findall(r"`([^`\n]+)`", _FENCED.sub("", text)):
        tokens = shlex.split(written) if "=" in written else []
        if tokens and all(re.fullmatch(r"-m|\+?[a-z_]+([./][a-z_]+)*=\S+", token) for token in tokens):
            key = tokens[0].lstrip("+").partition("=")[0]
            if key == "out" or key.split(".")[0] in (*GROUPS, "reading", "shard", "hydra/launcher"):
                yield settled(tokens)


def settled(tokens: list[str]) -> list[str]:
    """The tokens without choices left open (`data=...`, and its keys) and with a name for `<run>`."""
    left_open = {token.removesuffix("=...") for token in tokens if token.removesuffix("=...") in GROUPS}
    kept = ["hydra/launcher=slurm"] if tokens[0] == "sbatch" else []  # its settings are the launcher's
    for token in tokens:
        key, _, value = re.sub(r"<(\w+)>", r"\1", token).partition("=")
        if key in ("sbatch", "...") or (value == "..." and key.split(".")[0] in left_open):
            continue
        value = "http://localhost/v1" if value == "..." and key.endswith("_url") else value
        kept.append(f"{key}={value}" if "=" in token else token)
    return kept


def compose_and_check(arguments: list[str]) -> None:
    """As the program does before it loads anything: unknown names, keys and values are refused."""
    if not any(token.lstrip("+").startswith("exp=") for token in arguments):
        engine = any(token.startswith("backend=") for token in arguments)
        arguments = ["+exp=benchmark" if engine else "+exp=attention_drift", *arguments]
    rewritten = rewrite_overrides(arguments)
    swept = "-m" in rewritten
    parsed = OverridesParser.create().parse_overrides([token for token in rewritten if token != "-m"])
    assert swept or not any(override.is_sweep_override() for override in parsed), "-m is missing"
    choices = [
        [f"{override.get_key_element()}={value}" for value in override.sweep_string_iterator()]
        if override.is_sweep_override()
        else [override.input_line or ""]
        for override in parsed
    ]
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        for chosen in itertools.product(*choices):
            composed = compose("config", overrides=list(chosen), return_hydra_config=True)
            OmegaConf.set_readonly(composed, False)
            OmegaConf.set_struct(composed, False)
            composed.pop("hydra")
            values = OmegaConf.to_container(composed, resolve=True)
            assert isinstance(values, dict)
            config = run_config({str(key): value for key, value in values.items()})
            checked(config)
            from_mapping(loader(config.data.loader).Config, config.data.parameters, "data")


WRITTEN = [
    pytest.param(arguments, id=f"{name}: {' '.join(arguments)}")
    for name in NAMES
    for arguments in dict.fromkeys(
        map(
            tuple,
            [
                *commands(read(name)),
                *(fragments(read(name)) if name in ("README.md", "docs/usage.md") else ()),
            ],
        )
    )
    if "--config-dir" not in arguments
]


@pytest.mark.parametrize("arguments", WRITTEN)
def test_every_command_composes(arguments: tuple[str, ...]) -> None:
    compose_and_check(list(arguments))


@pytest.mark.parametrize(
    "arguments",
    [
        ["+exp=attention_drift", "exp.rol=last"],
        ["+exp=attention_drift", "model.pth=x"],
        ["+exp=benchmark", "data.splitt=test"],
        ["+exp=benchmark", "model=tiny,tiny_random"],
    ],
)
def test_a_command_that_cannot_run_is_found(arguments: list[str]) -> None:
    with pytest.raises((ConfigError, AssertionError)):
        compose_and_check(arguments)


def test_commands_are_found_in_every_form_that_pages_write_them_in() -> None:
    text = (
        "    python -m diagnostics +exp=a b.c=1 \\\n        data=... data.root=... d.some_url=... # why\n"
        "| `python -m diagnostics +exp=b x=<run>` | `python -m diagnostics` alone\n"
        "python -m diagnostics sbatch +exp=c 'data.ids=[q 1]' > run.sh\n"
    )
    assert list(commands(text)) == [
        ["+exp=a", "b.c=1", "d.some_url=http://localhost/v1"],
        ["+exp=b", "x=run"],
        ["hydra/launcher=slurm", "+exp=c", "data.ids=[q 1]"],
    ]


# Code


def blocks(name: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", read(name), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", [name for name in NAMES if "```python" in read(name)])
def test_python_on_pages_parses_and_imports_what_exists(name: str) -> None:
    for code in blocks(name, "python"):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    importlib.import_module(alias.name)
            elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                module = importlib.import_module(node.module)
                assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


@pytest.mark.parametrize("name", NAMES)
def test_json_and_yaml_on_pages_parse(name: str) -> None:
    for text in blocks(name, "yaml"):
        assert isinstance(yaml.safe_load(text), dict)
    for text in blocks(name, "json"):
        try:
            json.loads(text)
        except json.JSONDecodeError:  # lines of a .jsonl file
            assert all(isinstance(json.loads(line), dict) for line in text.splitlines())


def test_the_script_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "Agg")
    values = [{"evidence_log_lift": lift, "correct": True} for lift in (1.0, 3.0)]
    run, placeholder = write_run(tmp_path / "run", values), "outputs/attention_drift/<run>"
    (code,) = [code for code in blocks("README.md", "python") if placeholder in code]
    names: dict[str, Any] = {}
    exec(compile(code.replace(placeholder, str(run)), "README.md", "exec"), names)
    assert names["run"].records["measures.evidence_log_lift"].mean() == 2.0


# Lists


def test_the_readme_has_a_line_for_every_experiment() -> None:
    section = read("README.md").partition("## Experiments")[2].partition("\n## ")[0]
    told = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert sorted(told) == sorted(options("exp"))


def test_files_that_the_readme_names_as_proof_exist() -> None:
    section = read("README.md").partition("## What is measured against whom")[2].partition("\n## ")[0]
    named = re.findall(r"`(tests/[\w/.]+)`", section)
    assert len(named) > 5
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_version_and_date_are_one_everywhere() -> None:
    project = tomllib.loads(read("pyproject.toml"))["project"]
    citation = yaml.safe_load(read("CITATION.cff"))
    releases = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - (\d{4}-\d\d-\d\d)$", read("CHANGELOG.md"), re.MULTILINE)
    assert releases[0] == (project["version"], citation["date-released"])
    assert citation["version"] == project["version"]
    assert citation["license"] == project["license"]
    assert releases == sorted(releases, reverse=True)
    assert "## [Unreleased]" in read("CHANGELOG.md")


def test_the_citation_file_has_what_its_format_asks_for() -> None:
    citation = yaml.safe_load(read("CITATION.cff"))
    assert {"cff-version", "message", "title", "authors", "type"} <= set(citation)
    assert citation["cff-version"] == "1.2.0"
    for entry in citation["references"]:
        assert {"type", "title", "authors"} <= set(entry)
        assert all({"given-names", "family-names"} == set(person) for person in entry["authors"])
        assert entry["url"].endswith(entry["identifiers"][0]["value"].removeprefix("arXiv:"))
