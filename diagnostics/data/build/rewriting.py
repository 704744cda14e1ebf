"""Rewriting questions through an OpenAI-compatible endpoint, answer and options locked.

Only the question's text is sent and only it can change. Names and times in it must come back as they
were, and no option may slip in; else the original stays and the audit says so. Answers of the endpoint
are kept in a file, so that the same command gives the same benchmark.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from pydantic.dataclasses import dataclass

from diagnostics.data.build.audit import Audit
from diagnostics.data.build.candidates import Candidate
from diagnostics.data.build.filters import normal_text, text_fault
from diagnostics.data.build.reasons import RewriteRefusedError
from diagnostics.data.build.settings import Config
from diagnostics.errors import RunError
from diagnostics.store.atomic import write_text
from diagnostics.strict import STRICT

__all__ = ["INSTRUCTION", "Endpoint", "ask", "rewrite"]

INSTRUCTION = (
    "Rewrite the question in other words, in the same language, as a clinician would ask it. "
    "Keep its meaning. Copy every name and every time in it exactly. Do not answer it and add nothing. "
    "Reply with the question alone."
)

_ATTEMPTS = 3


@dataclass(frozen=True, config=STRICT)
class Endpoint:
    """Where the questions are sent.

    Attributes:
        url: of the API, up to `/v1`.
        model: its name there.
        key_variable: the environment variable that holds the key; none is sent where it is empty.
        timeout_seconds: for one reply.
    """

    url: str
    model: str
    key_variable: str = "OPENAI_API_KEY"
    timeout_seconds: Annotated[float, Field(gt=0)] = 60.0


def ask(endpoint: Endpoint, question: str) -> str:
    """The endpoint's reply to one question.

    Raises:
        RewriteRefusedError: it answers with an error, or with something that is no chat completion.
        RunError: it cannot be reached, or refuses the key.
    """
    body = {
        "model": endpoint.model,
        "temperature": 0,
        "seed": 0,
        "messages": [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": question}],
    }
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get(endpoint.key_variable):
        headers["Authorization"] = f"Bearer {key}"
    address = f"{endpoint.url.rstrip('/')}/chat/completions"
    if not address.startswith(("http://", "https://")):
        raise RunError(f"{endpoint.url!r} is no web address.", remedy="Write http://host:port/v1.")
    request = urllib.request.Request(address, json.dumps(body).encode(), headers)
    reply = _reply(request, endpoint)
    try:
        text = reply["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError) as error:
        raise _refused(f"The endpoint's reply is no chat completion: {str(reply)[:200]}.") from error
    if not isinstance(text, str):
        raise _refused(f"The endpoint's reply holds {text!r}.")
    return text.strip()


def _reply(request: urllib.request.Request, endpoint: Endpoint) -> Any:
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            with urllib.request.urlopen(request, timeout=endpoint.timeout_seconds) as response:
                return json.loads(response.read())
        except urllib.error.HTTPError as error:
            if error.code in (401, 403, 404):
                raise RunError(
                    f"The endpoint {endpoint.url} answers {error.code}.",
                    remedy=f"Check the address, the model's name and the key in {endpoint.key_variable}.",
                ) from error
            if (error.code < 500 and error.code != 429) or attempt == _ATTEMPTS:
                raise _refused(f"The endpoint answers {error.code}.") from error
        except (TimeoutError, ConnectionError, http.client.HTTPException) as error:
            if attempt == _ATTEMPTS:
                told = f"{type(error).__name__} at the last attempt, {endpoint.timeout_seconds:g} s allowed"
                raise _refused(f"The endpoint does not reply: {told}.") from error
        except urllib.error.URLError as error:
            raise RunError(
                f"The endpoint {endpoint.url} cannot be reached: {error.reason}.", remedy="Is it running?"
            ) from error
        except ValueError as error:
            raise _refused("The endpoint's reply is no JSON.") from error
        time.sleep(0.1 * 4**attempt)
    raise AssertionError("the last attempt returns or raises")


def _refused(problem: str) -> RewriteRefusedError:
    return RewriteRefusedError(problem, remedy="The original question stays.")


def rewrite(
    candidates: Sequence[Candidate],
    endpoint: Endpoint,
    kept_replies: Path,
    config: Config,
    audit: Audit,
    reply_to: Callable[[Endpoint, str], str] = ask,
) -> list[Candidate]:
    """The candidates, each with its question in other words where the reply may be trusted.

    Args:
        kept_replies: a JSON file of earlier replies, used and extended.
        reply_to: gets a reply; for tests.

    Raises:
        RunError: the endpoint cannot be reached.
    """
    replies: dict[str, str] = json.loads(kept_replies.read_text("utf-8")) if kept_replies.exists() else {}

    def reworded(candidate: Candidate) -> Candidate:
        key = json.dumps([endpoint.model, INSTRUCTION, candidate.question], ensure_ascii=False)
        if key not in replies:
            replies[key] = reply_to(endpoint, candidate.question)
        _check_locked(candidate, replies[key], config)
        if replies[key] == candidate.question:
            return candidate
        return replace(candidate, question=replies[key], rewritten_from=candidate.question)

    rewritten = []
    try:
        for candidate in candidates:
            audit.count_tasks("rewriting", [candidate.task])
            try:
                rewritten.append(reworded(candidate))
            except RewriteRefusedError as error:
                name, told = candidate.finding.procedure.name, candidate.told()
                audit.drop(
                    "rewriting", error, dropped=False, procedure=name, task=candidate.task, candidate=told
                )
                rewritten.append(candidate)
    finally:  # an endpoint that goes away half-way costs only what is left
        write_text(kept_replies, json.dumps(replies, ensure_ascii=False, indent=1) + "\n")
    return rewritten


def _check_locked(candidate: Candidate, text: str, config: Config) -> None:
    """The rewritten question names what the original names, and no option more.

    Raises:
        RewriteRefusedError: it does not.
    """
    fault = text_fault(text, config.max_characters)
    if fault:
        raise _refused(f"The rewritten question {fault}: {text[:80]!r}.")
    lost = [name for name in candidate.finding.names.values() if name not in text]
    if lost:
        raise _refused(f"The rewritten question lost {lost[0]!r}: {text[:120]!r}.")
    before, after = normal_text(candidate.question), normal_text(text)
    for option in map(normal_text, (candidate.answer, *candidate.wrong)):
        whole = re.compile(rf"(?<!\w){re.escape(option)}(?!\w)")
        if whole.search(after) and not whole.search(before):
            raise _refused(f"The rewritten question gained the option {option!r}: {text[:120]!r}.")
