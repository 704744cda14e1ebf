"""A whole benchmark through a served model: killed and resumed, and where the key goes."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from diagnostics.store.manifest import read_manifests
from diagnostics.store.record_log import all_records, read_records
from diagnostics.store.records import comparable

from ..models.chat_server import Asked, ChatServer, Reply, completion, serving
from .conftest import environment

KEY = "sk-test-fedcba9876543210"
N = 12


def command(server: ChatServer | str, folder: Path, *more: str) -> list[str]:
    url = server if isinstance(server, str) else server.url
    return [
        sys.executable, "-m", "diagnostics", "+exp=benchmark", "model=served", "model.path=org/served",
        "data.n_videos=3", "data.seconds=30", "data.fps=8", "data.evidence_ratio=0.0167", "data.questions=4",
        "sampling.budget=4", "backend=openai", f"backend.base_url={url}", "backend.key_env=ENDPOINT_KEY",
        "backend.backoff_seconds=0.01", "backend.max_retries=2", f"out={folder}", *more,
    ]  # fmt: skip


def run(cache: Path, line: list[str]) -> subprocess.CompletedProcess[str]:
    told = {**environment(cache), "ENDPOINT_KEY": KEY}
    return subprocess.run(line, env=told, capture_output=True, text=True, timeout=600)


def name_of(call: Asked) -> str:
    """What the record calls the prompt."""
    return hashlib.sha256(json.dumps([call.body["messages"], {}], sort_keys=True).encode()).hexdigest()


def by_content(call: Asked) -> Reply:
    """An answer that depends on question and pictures, and log-probabilities with it."""
    digit = int(name_of(call), 16)
    body = completion("AB"[digit % 2])
    for place, entry in enumerate(body["choices"][0]["logprobs"]["content"][0]["top_logprobs"]):
        entry["logprob"] = -1.0 - (digit >> 4 * place) % 16
    return Reply(body)


def files(folder: Path) -> Iterator[bytes]:
    return (path.read_bytes() for path in folder.rglob("*") if path.is_file())


@contextmanager
def started(cache: Path, line: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    told = {**environment(cache), "ENDPOINT_KEY": KEY}
    with subprocess.Popen(line, env=told, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def lines(folder: Path) -> int:
    path = folder / "samples.0.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_killed_in_the_middle_no_finished_item_is_asked_again(cache: Path, tmp_path: Path) -> None:
    """Five are answered, the sixth and seventh hang while the run is killed: the five are on disk by then."""
    with serving(by_content) as server:
        finished = run(cache, command(server, tmp_path / "once"))
        assert finished.returncode == 0, finished.stdout + finished.stderr
        assert len(server.asked) == N
    once = read_records(tmp_path / "once")
    assert len({record.prompt_sha256 for record in once}) == N, "or it could not be seen which was asked"
    assert {record.answer for record in once} == {"A", "B"}

    folder, killed, turns = tmp_path / "killed", threading.Event(), iter(range(10**6))

    def answers_five(call: Asked) -> Reply:
        if not killed.is_set() and next(turns) >= 5:
            killed.wait(300)
        return by_content(call)

    with serving(answers_five) as server:
        with started(cache, command(server, folder, "backend.concurrency=2")) as process:
            deadline = time.monotonic() + 300
            while (lines(folder) < 5 or len(server.asked) < 7) and time.monotonic() < deadline:
                assert process.poll() is None, "it ended before it could be killed"
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
        killed.set()
        before = all_records(folder)
        n_asked = len(server.asked)
        assert (len(before), n_asked) == (5, 7)
        # Another address and another concurrency are the same run.
        finished = run(cache, command(server, folder, "backend.concurrency=5"))
        assert finished.returncode == 0, finished.stdout + finished.stderr
        again = Counter(name_of(call) for call in server.asked[n_asked:])
    assert again.total() == N - 5
    assert not set(again) & {record.prompt_sha256 for record in before}
    assert [comparable(r) for r in read_records(folder)] == [comparable(r) for r in once]
    assert len(all_records(folder)) == N, "nothing twice"
    summaries = [json.loads((tmp_path / name / "summary.json").read_text()) for name in ("once", "killed")]
    of_machine = ("engine_idle", "endpoint_prompt_tokens", "endpoint_reply_tokens")  # a kill loses its counts
    told = [{k: v for k, v in one["metrics"].items() if k not in of_machine} for one in summaries]
    assert told[0] == told[1]


def test_the_key_is_in_no_file_and_on_no_screen(cache: Path, tmp_path: Path) -> None:
    """The server repeats it in every message that it can; retries and a refused item are in the records."""
    guard, seen = threading.Lock(), Counter[str]()

    def echo(call: Asked) -> Reply:
        with guard:
            seen[name_of(call)] += 1
            first, place = seen[name_of(call)] == 1, len(seen)
        said = {"error": {"message": f"not with {call.headers}"}}
        if place == 1:
            return Reply(said, 400)
        return Reply(said, 503) if first and place % 2 else by_content(call)

    folder = tmp_path / "run"
    with serving(echo) as server:
        prices = ("backend.input_price=1", "backend.output_price=2", "backend.concurrency=1")
        finished = run(cache, command(server, folder, *prices))
        assert finished.returncode == 0, finished.stdout + finished.stderr
        assert all(call.headers["Authorization"] == f"Bearer {KEY}" for call in server.asked)
    assert not [content for content in files(folder) if KEY.encode() in content]
    assert KEY not in finished.stdout + finished.stderr
    records = read_records(folder)
    assert [record.error.type for record in records if record.error] == ["EndpointError"]
    retried = [warning for record in records for warning in record.warnings if "retried: " in warning]
    assert len(retried) == 5
    assert all("not with" in warning for warning in retried)
    assert "retried" in finished.stdout
    (manifest,) = read_manifests(folder)
    told = manifest.checks["endpoint"]
    assert (told["base_url"], told["model"]) == (server.url, "org/served")
    assert told["retries"] == {"HTTP 503": 5}
    assert told["cost"] == pytest.approx((11 * 100 + 11 * 2 * 2) / 1e6)
    metrics = json.loads((folder / "summary.json").read_text())["metrics"]
    assert metrics["endpoint_cost"]["mean"] == pytest.approx(told["cost"])
    assert "endpoint_cost" in finished.stdout


def test_a_run_on_an_endpoint_does_without_torch(cache: Path, tmp_path: Path) -> None:
    program = (
        "import sys; sys.argv = ['diagnostics', *sys.argv[1:]]\n"
        "from diagnostics.__main__ import main\n"
        "code = main()\n"
        "heavy = {'torch', 'transformers', 'hooks'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else code)"
    )
    with serving(by_content) as server:
        _, _, _, *arguments = command(server, tmp_path / "run", "data.n_videos=1")
        finished = run(cache, [sys.executable, "-c", program, *arguments])
    assert finished.returncode == 0, finished.stdout + finished.stderr


def test_a_refused_key_ends_the_run_and_names_its_variable(cache: Path, tmp_path: Path) -> None:
    body = {"error": {"message": f"Incorrect API key: {KEY}"}}
    with serving(lambda call: Reply(body, 401)) as server:
        finished = run(cache, command(server, tmp_path / "run", "backend.concurrency=2"))
        assert 1 <= len(server.asked) <= 2
    assert finished.returncode == 2
    assert "ENDPOINT_KEY" in finished.stderr
    assert KEY not in finished.stdout + finished.stderr
    assert not [content for content in files(tmp_path / "run") if KEY.encode() in content]
    assert read_records(tmp_path / "run") == []


def test_a_key_in_the_address_is_refused_and_not_repeated(cache: Path, tmp_path: Path) -> None:
    """Before there is a folder: its manifest would hold the command line."""
    finished = run(cache, command(f"http://user:{KEY}@127.0.0.1:9/v1", tmp_path / "run"))
    assert finished.returncode == 2
    assert "backend.base_url" in finished.stderr
    assert KEY not in finished.stdout + finished.stderr
    assert not (tmp_path / "run").exists()


def test_a_served_model_must_be_named(cache: Path, tmp_path: Path) -> None:
    line = [
        argument for argument in command("http://h/v1", tmp_path) if not argument.startswith("model.path")
    ]
    finished = run(cache, line)
    assert "model.path must be given" in finished.stderr
    assert finished.returncode == 2
