"""A chat-completions server on loopback that misbehaves as it is told, and remembers what it was asked."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
from PIL import Image

__all__ = ["Asked", "ChatServer", "Reply", "completion", "decoded", "question_of", "serving"]


def completion(text: str | None = "A", **changes: Any) -> dict[str, Any]:
    """A body as OpenAI and vLLM send it."""
    top = [{"token": letter, "logprob": -0.5 - place} for place, letter in enumerate("ABCDEFGHIJ")]
    return {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "served-name",
        "choices": [{
            "index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text},
            "logprobs": {"content": [{"token": "A", "logprob": -0.5, "bytes": [65], "top_logprobs": top}]},
        }],
        "usage": {"prompt_tokens": 100, "completion_tokens": 2, "total_tokens": 102},
        "system_fingerprint": "fp_1",
    } | changes  # fmt: skip


@dataclass(frozen=True)
class Reply:
    """What the server does with one call.

    Attributes:
        body: sent as JSON, or as it is where it is bytes.
        cut: close after half of the body. drip: send one byte at a time, for ever.
        wait: called before anything is sent.
    """

    body: Any = field(default_factory=completion)
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    drip: bool = False
    wait: Callable[[], Any] = lambda: None


@dataclass(frozen=True)
class Asked:
    """A call: its body, headers, path, and when it came (monotonic seconds)."""

    body: dict[str, Any]
    headers: dict[str, str]
    path: str
    at: float

    @property
    def question(self) -> str:
        """The text that ends the conversation."""
        return question_of(self.body)


def question_of(body: dict[str, Any]) -> str:
    content = body["messages"][-1]["content"]
    return content if isinstance(content, str) else content[-1]["text"]


def decoded(url: str) -> list[np.ndarray]:
    """The pictures of a data URL, [height, width, 3] each."""
    data = url.partition(";base64,")[2]
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(one)))) for one in data.split(",")]


class ChatServer:
    """See `serving`."""

    def __init__(self, behave: Callable[[Asked], Reply]) -> None:
        self.asked: list[Asked] = []
        self.inside = self.most_inside = 0
        self.closing = threading.Event()
        self._behave, self._guard = behave, threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                outer._serve(self)

            def log_message(self, *arguments: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_port}/v1"

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        call = Asked(body, dict(handler.headers), handler.path, time.monotonic())
        with self._guard:
            self.asked.append(call)
            self.inside += 1
            self.most_inside = max(self.most_inside, self.inside)
        try:
            reply = self._behave(call)
            reply.wait()
        finally:
            with self._guard:
                self.inside -= 1
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._send(handler, reply)

    def _send(self, handler: BaseHTTPRequestHandler, reply: Reply) -> None:
        content = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        handler.send_response(reply.status)
        for name, value in reply.headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(10**6 if reply.drip else len(content)))
        handler.end_headers()
        while reply.drip and not self.closing.wait(0.02):
            handler.wfile.write(b" ")
            handler.wfile.flush()
        handler.wfile.write(content[: len(content) // 2] if reply.cut else content)
        handler.close_connection = reply.cut or reply.drip


@contextmanager
def serving(behave: Callable[[Asked], Reply] | Sequence[Reply]) -> Iterator[ChatServer]:
    """A server in a thread.

    Args:
        behave: what to do with a call, or what to do with the first, the second...; then all is well.
    """
    if not callable(behave):
        plan = iter(behave)
        server = ChatServer(lambda call: next(plan, Reply()))
    else:
        server = ChatServer(behave)
    thread = threading.Thread(target=server.http.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.closing.set()
        server.http.shutdown()
        server.http.server_close()
        thread.join()
