"""One chat-completions call over HTTP, tried again while that can help.

Tried again, after a pause that doubles and is partly random, or that the server names (`Retry-After` in
seconds or as a date, `retry-after-ms`): 408, 409, 425, 429, 5xx, no answer in time, a cut connection, a body
that is not what the protocol says. Not tried again: everything else that the server refuses. 400, 413, 422
and their like are about the item; a refused key, an empty account, an unknown model or address about the run.

What the server says goes into errors with the key, other keys and pictures taken out.
"""

from __future__ import annotations

import asyncio
import email.utils
import json
import random
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx
from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_attempt
from tenacity.wait import wait_exponential, wait_random

from diagnostics.errors import DiagnosticsError, EndpointError, EndpointUnusableError

__all__ = ["ChatClient", "Completion", "Limits", "first_token", "pause_of"]

_AGAIN = frozenset({408, 409, 425, 429})
_HERE = frozenset({"localhost", "127.0.0.1", "::1"})
_LONGEST_BACKOFF = 60.0
"""Seconds between two attempts at most, where the server names no time."""
_MESSAGE = 400
"""Characters of a server's message that are kept."""
_SECRETS = re.compile(
    r"data:[\w.+-]+/[\w.+-]+;base64,[A-Za-z0-9+/=,]*|\bsk-[\w*-]{6,}|\b(?:Bearer|Basic)\s+\S+", re.IGNORECASE
)


class Limits(BaseModel, frozen=True):
    """How long and how often: seconds of one attempt, further attempts, seconds of the first pause and of the
    longest one that a server may ask for, calls at a time."""

    timeout_seconds: float
    max_retries: int
    backoff_seconds: float
    longest_wait_seconds: float
    concurrency: int


class _Message(BaseModel):
    content: str | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None
    logprobs: Any = None


class _Details(BaseModel):
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None


class _Usage(BaseModel):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None


class Completion(BaseModel):
    """What is read of the server's reply."""

    choices: list[_Choice] = Field(min_length=1)
    model: str | None = None
    system_fingerprint: str | None = None
    usage: _Usage | None = None


class _Token(BaseModel):
    token: str
    logprob: float


class _Position(_Token):
    top_logprobs: list[_Token] = []


def first_token(completion: Completion) -> list[tuple[str, float]]:
    """The likeliest first tokens of the reply and their log-probabilities; empty where they are not told, or
    not in the protocol's form."""
    told = completion.choices[0].logprobs
    positions = told.get("content") if isinstance(told, dict) else None
    if not isinstance(positions, list) or not positions:
        return []
    try:
        first = TypeAdapter(_Position).validate_python(positions[0])
    except ValidationError:
        return []
    return [(entry.token, entry.logprob) for entry in first.top_logprobs]


class _PassingError(Exception):
    """An attempt that failed and may do better another time.

    Attributes:
        wait: seconds that the server asks for, or None.
        nobody: no connection could be made.
    """

    def __init__(self, reason: str, *, wait: float | None = None, nobody: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.wait, self.nobody = reason, wait, nobody


class ChatClient:
    """Asks one endpoint. To be used in one event loop.

    Args:
        address: of the API, up to `/v1`.
        key: sent as bearer token; None sends none.
        key_env: the variable that the key comes from, for messages.
        limits: how long and how often.
    """

    def __init__(self, address: str, key: str | None, key_env: str | None, limits: Limits) -> None:
        self.address = address.rstrip("/")
        self._key, self._key_env, self._limits = key, key_env, limits
        first = limits.backoff_seconds
        self._backoff = wait_exponential(multiplier=first, max=_LONGEST_BACKOFF) + wait_random(0, first)
        headers = {"Content-Type": "application/json"}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        # The limit is on the whole attempt (`_attempt`): httpx's own is on each read, and a server that drips
        # one byte at a time would never reach it.
        self._http = httpx.AsyncClient(
            headers=headers,
            timeout=None,
            limits=httpx.Limits(max_connections=limits.concurrency),
            # A proxy that the environment names is none for this machine's own server.
            trust_env=httpx.URL(address).host not in _HERE,
        )

    async def close(self) -> None:
        """Let go of the connections."""
        await self._http.aclose()

    async def complete(self, content: bytes, on_retry: Callable[[str], None]) -> Completion:
        """Send the body `content` until it is answered.

        Args:
            on_retry: told why an attempt failed, before each further one.

        Raises:
            EndpointError: it is refused for what it holds, or no attempt was answered.
            EndpointUnusableError: no item would be answered.
        """

        def told(state: RetryCallState) -> None:
            on_retry(_failure(state).reason)

        attempts = AsyncRetrying(
            retry=retry_if_exception_type(_PassingError),
            wait=self._wait,
            stop=stop_after_attempt(self._limits.max_retries + 1),
            before_sleep=told,
            reraise=True,
        )
        try:
            return await attempts(self._attempt, content)
        except _PassingError as error:
            raise self._given_up(error) from None

    def _wait(self, state: RetryCallState) -> float:
        """Seconds before the next attempt: never less than the server asks for."""
        asked = _failure(state).wait
        if asked is None:
            return self._backoff(state)
        return asked + random.uniform(0, min(1.0, self._limits.backoff_seconds))

    def _given_up(self, error: _PassingError) -> DiagnosticsError:
        n = self._limits.max_retries + 1
        tried = f"{n} attempts" if n > 1 else "one attempt"
        if error.nobody:
            return EndpointUnusableError(
                f"Nobody answers at {self.address} ({error.reason}; {tried}).",
                remedy="Start the server or correct backend.base_url; the same command goes on.",
            )
        return EndpointError(
            f"The endpoint gave no answer in {tried}; the last one: {error.reason}.",
            remedy="The same command asks again; backend.max_retries and backend.timeout_seconds allow more.",
        )

    async def _attempt(self, content: bytes) -> Completion:
        try:
            async with asyncio.timeout(self._limits.timeout_seconds):
                response = await self._http.post(f"{self.address}/chat/completions", content=content)
        except TimeoutError:
            raise _PassingError(f"no answer within {self._limits.timeout_seconds:g} s") from None
        except httpx.RequestError as error:
            reason = f"{type(error).__name__}: {self._clean(str(error))}".rstrip(": ")
            raise _PassingError(reason, nobody=isinstance(error, httpx.ConnectError)) from None
        if response.status_code != httpx.codes.OK:
            raise self._refused(response)
        try:
            return Completion.model_validate_json(response.content)
        except ValidationError:
            said = self._clean(_message(response))
            raise _PassingError(f"not a chat completion: {said}" if said else "an empty body") from None

    def _refused(self, response: httpx.Response) -> Exception:
        status, message = response.status_code, self._clean(_message(response))
        reason = f"HTTP {status}: {message}" if message else f"HTTP {status}"
        if status in (401, 403):  # its message is left out: some repeat a part of the key
            source = f"the environment variable {self._key_env}" if self._key_env else "no key was sent"
            return EndpointUnusableError(
                f"The endpoint refuses access (HTTP {status}; {source}).",
                remedy=f"Put a key that may use this model into {self._key_env}."
                if self._key_env
                else "Name the environment variable that holds the key: backend.key_env=NAME.",
            )
        if status == 402 or (status == 429 and _code(response) == "insufficient_quota"):
            return EndpointUnusableError(
                f"The account is empty ({reason}).", remedy="Fill it; the same command goes on."
            )
        if status in _AGAIN or status >= 500:
            wait = pause_of(response.headers)
            if wait is not None and wait > self._limits.longest_wait_seconds:
                return EndpointUnusableError(
                    f"The endpoint asks to wait {wait:.0f} s ({reason}).",
                    remedy="Run the same command later, or raise backend.longest_wait_seconds.",
                )
            return _PassingError(reason, wait=wait)
        if status < 400 or status in (404, 405):
            return EndpointUnusableError(
                f"There is no such model or address at {self.address} ({reason}).",
                remedy="Correct backend.base_url (it ends in /v1 at most endpoints) or backend.model.",
            )
        return EndpointError(
            f"The endpoint refuses this request ({reason}).",
            remedy="Where it is too much, lower sampling.budget, reading.max_side or backend.jpeg_quality; a "
            "parameter it does not know is taken away by null in backend.extra_body.",
        )

    def _clean(self, text: str) -> str:
        """One line without secrets and pictures, cut after that."""
        if self._key is not None:
            text = text.replace(self._key, "***")
        text = " ".join(_SECRETS.sub("***", text).split())
        return text if len(text) <= _MESSAGE else f"{text[:_MESSAGE]}..."

    def clean_name(self, text: str) -> str:
        """A name the server gives itself, for the manifest."""
        return self._clean(text)


def _failure(state: RetryCallState) -> _PassingError:
    assert state.outcome is not None
    error = state.outcome.exception()
    assert isinstance(error, _PassingError)
    return error


def pause_of(headers: httpx.Headers) -> float | None:
    """Seconds that `retry-after-ms` or `Retry-After` ask for; None where there is none that can be read.

    A date is compared with the server's own clock where it tells it (`Date`).
    """
    milliseconds, asked = headers.get("retry-after-ms"), headers.get("retry-after")
    for text, unit in ((milliseconds, 1000.0), (asked, 1.0)):
        if text is not None and re.fullmatch(r"\s*\d+(\.\d+)?\s*", text):
            return float(text) / unit
    until = _date(asked)
    if until is None:
        return None
    return max(0.0, (until - (_date(headers.get("date")) or datetime.now(UTC))).total_seconds())


def _date(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        found = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _message(response: httpx.Response) -> str:
    """The server's own words."""
    body = _json(response)
    error = body.get("error", body) if isinstance(body, dict) else body
    for name in ("message", "detail"):
        if isinstance(error, dict) and error.get(name):
            return str(error[name])
    return response.text if body is None else json.dumps(error)


def _code(response: httpx.Response) -> Any:
    body = _json(response)
    error = body.get("error") if isinstance(body, dict) else None
    return error.get("code") or error.get("type") if isinstance(error, dict) else None


def _json(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return None
