"""Rewriting through an endpoint: a real server on this machine, and answers it should not be trusted with."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from diagnostics.data.build import Config, build
from diagnostics.data.build.reasons import RewriteRefusedError
from diagnostics.data.build.rewriting import INSTRUCTION, Endpoint, ask
from diagnostics.errors import RunError

from .conftest import Tracks, procedure

CONFIG = Config(tasks=("PR", "IR", "CPR"), per_task=4)


class Server:
    """An OpenAI-compatible endpoint that rewrites by `self.reply`, and remembers what it was asked."""

    def __init__(self) -> None:
        self.reply: Callable[[str], str | bytes | int] = lambda question: f"Please tell me: {question}"
        self.requests: list[tuple[str, dict[str, str], dict]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append((self.path, dict(self.headers), body))
                reply = outer.reply(body["messages"][-1]["content"])
                if isinstance(reply, int):
                    self.send_error(reply)
                    return
                told = {"choices": [{"message": {"role": "assistant", "content": reply}}]}
                raw = reply if isinstance(reply, bytes) else json.dumps(told).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.endpoint = Endpoint(f"http://127.0.0.1:{self.server.server_port}/v1", "a-model")


@pytest.fixture
def server() -> Iterator[Server]:
    one = Server()
    yield one
    one.server.shutdown()
    one.server.server_close()


@pytest.fixture
def run(tmp_path):
    tracks = Tracks([procedure(number) for number in range(6)])
    file = tracks.json(tmp_path / "tracks.json")

    def build_here(endpoint=None, out="out"):
        return build([file], tmp_path / out, CONFIG, probe=tracks.probe, endpoint=endpoint)

    return build_here


def test_questions_are_reworded_answer_and_options_locked(server, run, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-real-key")
    plain = {item.id: item for item in run(out="plain").items}
    built = run(server.endpoint)
    assert len(built.items) == len(plain) == 12
    for item in built.items:
        original = plain[item.id]
        assert item.question == f"Please tell me: {original.question}"
        assert item.metadata["rewritten_from"] == original.question
        assert (item.options, item.answer, item.evidence) == (
            original.options,
            original.answer,
            original.evidence,
        )
    for path, headers, body in server.requests:
        assert path == "/v1/chat/completions"
        assert headers["Authorization"] == "Bearer not-a-real-key"
        assert body["model"] == "a-model"
        assert body["messages"][0]["content"] == INSTRUCTION
        assert body["messages"][1]["content"] in {item.question for item in plain.values()}, (
            "the question alone"
        )
    assert "not-a-real-key" not in "".join(path.read_text() for path in built.folder.iterdir())


def test_replies_are_kept_so_the_same_command_gives_the_same_benchmark(server, run):
    first = run(server.endpoint)
    asked = len(server.requests)
    server.reply = lambda question: f"Otherwise: {question}"
    second = run(server.endpoint)
    assert second.items == first.items
    assert len(server.requests) == asked


@pytest.mark.parametrize(
    "reply",
    [
        lambda question: "",
        lambda question: "What is done then?",  # names and times lost
        lambda question: question.replace("0:", "1:").replace("phase", "stage").replace("step ", "act "),
        lambda question: f"{question} {{answer}}",
        lambda question: question + "x" * 1000,
        lambda question: b"<html>no JSON</html>",
        lambda question: b'{"choices": []}',
        lambda question: b'{"choices": [{"message": {"content": null}}]}',
        lambda question: 400,
    ],
)
def test_a_reply_that_cannot_be_trusted_leaves_the_question_as_it_was(server, run, reply):
    plain = {item.id: item.question for item in run(out="plain").items}
    server.reply = reply
    built = run(server.endpoint)
    asked = {item.id: item.question for item in built.items}
    refused = {e.candidate["id"] for e in built.audit.entries if e.stage == "rewriting"}
    assert refused, "nothing was refused"
    assert {item_id for item_id in plain if asked[item_id] == plain[item_id]} >= refused
    assert {e.reason for e in built.audit.entries if e.stage == "rewriting"} == {"RewriteRefusedError"}
    assert not any(e.dropped for e in built.audit.entries if e.stage == "rewriting")
    assert len(built.items) == len(plain)


def test_a_reply_that_gives_the_answer_away_is_refused(server, run):
    plain = {item.question: item for item in run(out="plain").items}

    def hint(question):
        item = plain[question]
        return f"{question} Is it {item.options['ABCD'.index(item.answer)]}?"

    server.reply = hint
    built = run(server.endpoint)
    assert {item.question for item in built.items} == set(plain)


def test_a_busy_server_is_asked_again(server, run):
    calls: dict[str, int] = {}

    def busy(question):
        calls[question] = calls.get(question, 0) + 1
        return 503 if calls[question] == 1 and len(calls) < 3 else f"Please: {question}"

    server.reply = busy
    assert all(item.question.startswith("Please: ") for item in run(server.endpoint).items)


def test_a_server_that_hangs_up_or_is_slow_is_given_up_after_three_attempts(server):
    def hang_up(question):
        raise ConnectionResetError

    server.server.handle_error = lambda *_: None
    server.reply = hang_up
    with pytest.raises(RewriteRefusedError, match="does not reply"):
        ask(server.endpoint, "What is it?")
    assert len(server.requests) == 3
    server.reply = lambda question: time.sleep(0.5) or "late"
    with pytest.raises(RewriteRefusedError, match="does not reply"):
        ask(replace(server.endpoint, timeout_seconds=0.05), "What is it?")


def test_a_refused_key_or_a_server_that_is_not_there_stops_the_build(server, run):
    server.reply = lambda question: 401
    with pytest.raises(RunError, match="401"):
        run(server.endpoint)
    with pytest.raises(RunError, match="cannot be reached"):
        run(Endpoint("http://127.0.0.1:9/v1", "a-model"))
    with pytest.raises(RunError, match="no web address"):
        run(Endpoint("file:///etc/passwd", "a-model"))
