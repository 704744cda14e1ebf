"""Answers of a served model: any endpoint with OpenAI's chat completions, such as vLLM's own server or the
gateways of GPT, Gemini, Kimi and Qwen.

Every question is a call of its own, a coroutine of one event loop in a thread of its own, so many at once at
most; leaving the engine ends those that hang or wait. Frames are encoded once for the questions that follow
one another about the same pictures.

The key comes from an environment variable and goes into one header, nowhere else. What the server counts
(tokens), who it says it is, how often it was asked again, and the cost where prices are given go into the
manifest as `endpoint`, during the run too.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from pydantic.dataclasses import dataclass as configured

from diagnostics.errors import ConfigError, DiagnosticsError, ModelError
from diagnostics.models.backends.chat_messages import Pictures, Visual, chat_messages, merged, pictures
from diagnostics.models.backends.requests import Answer, Request
from diagnostics.models.config import ModelConfig
from diagnostics.strict import STRICT

if TYPE_CHECKING:
    from diagnostics.models.backends.chat_client import ChatClient, Completion
    from diagnostics.models.loading import LoadedModel

__all__ = ["Config", "OpenaiEngine", "engine", "option_logprobs"]

_OURS = frozenset({"messages", "model", "stream", "n"})
"""Keys of a call that `extra_body` may not change: the reply would not be the one that is recorded."""

_NOTE_EVERY = 30.0
"""Seconds between two notes of the counts: what a killed run loses of them."""

_UNTOLD = -9999.0
"""What some servers write in place of a log-probability that they do not tell."""


@configured(frozen=True, config=STRICT)
class Config:
    """Parameters of this engine.

    Attributes:
        base_url: address of the API up to its version: `http://localhost:8000/v1`. It goes into the manifest,
            so no user, password or query may be in it.
        model: what the endpoint calls the model; None takes `model.path`, vLLM's own default.
        key_env: name of the environment variable that holds the key; None sends no key.
        concurrency: calls under way at once, at most.
        timeout_seconds: of one attempt, from connecting to the last byte.
        max_retries: further attempts.
        backoff_seconds: pause before the second attempt; it doubles, up to a minute.
        longest_wait_seconds: a `Retry-After` beyond it ends the run.
        frames: `images`, each with its time as text, or `video`, as vLLM's server takes it.
        jpeg_quality: 1 to 100.
        image_detail: `detail` of each image, for endpoints that have such levels.
        logprobs: so many likeliest first tokens are asked for, at most 20; 0 for endpoints that refuse it.
        extra_body: further keys of the call; null takes one of ours away (`temperature`, `max_tokens`).
        input_price, output_price: of a million tokens, for the cost in the summary.
    """

    base_url: str
    model: str | None = None
    key_env: str | None = None
    concurrency: PositiveInt = 8
    timeout_seconds: PositiveFloat = 300.0
    max_retries: NonNegativeInt = 8
    backoff_seconds: PositiveFloat = 1.0
    longest_wait_seconds: PositiveFloat = 600.0
    frames: Visual = "images"
    jpeg_quality: Annotated[int, Field(ge=1, le=100)] = 95
    image_detail: Literal["low", "high", "auto"] | None = None
    logprobs: Annotated[int, Field(ge=0, le=20)] = 20
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    input_price: NonNegativeFloat | None = None
    output_price: NonNegativeFloat | None = None

    def __post_init__(self) -> None:
        """Refuse an address that is none or holds a secret, without repeating it: no `ValueError`, whose
        message has the value in it."""
        try:
            parts = urlsplit(self.base_url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            usable = False
        if not usable:
            raise ConfigError(
                "backend.base_url is no http address.", remedy="Write it as http://localhost:8000/v1."
            )
        if parts.username or parts.password or "@" in parts.netloc or parts.query or parts.fragment:
            raise ConfigError(
                "backend.base_url holds a user, a password or a query, and it goes into the manifest.",
                remedy="Put the key into an environment variable and name it: backend.key_env=NAME.",
            )
        taken = sorted(_OURS & set(self.extra_body))
        if taken:
            raise ConfigError(
                f"backend.extra_body holds {', '.join(taken)}, which the engine sets.",
                remedy="Leave it out; the model's name is backend.model.",
            )


def engine(
    load: Callable[[], LoadedModel], model: ModelConfig, settings: Config, note: Callable[[str, Any], None]
) -> OpenaiEngine:
    """See `diagnostics.models.backends`."""
    del load  # it is served: nothing is loaded here
    if model.sound:
        raise ConfigError("model.sound is for backend=hf.", remedy="Set model.sound=false.")
    return OpenaiEngine(model, settings, note)


def option_logprobs(letters: Sequence[str], told: Sequence[tuple[str, float]]) -> tuple[float, ...]:
    """Log-probability of each option's letter; empty unless each is told, once: never a guess.

    Args:
        told: first tokens and their log-probabilities. A token is a letter where it is exactly that: ` A` is
            another token than `A`.
    """
    found = {letter: [value for token, value in told if token == letter] for letter in letters}
    values = [one[0] for one in found.values() if len(one) == 1 and math.isfinite(one[0])]
    if len(values) < len(letters) or _UNTOLD in values:
        return ()
    return tuple(values)


@dataclass
class _Ledger:
    """What a run asked for and got, in this attempt."""

    requests: int = 0
    answered: int = 0
    failed: int = 0
    retries: Counter[str] = field(default_factory=Counter)
    tokens: Counter[str] = field(default_factory=Counter)
    without_usage: int = 0
    served_as: set[str] = field(default_factory=set)
    fingerprints: set[str] = field(default_factory=set)

    def count(self, completion: Completion, clean: Callable[[str], str]) -> None:
        """Add a reply."""
        self.answered += 1
        if completion.model:
            self.served_as.add(clean(completion.model))
        if completion.system_fingerprint:
            self.fingerprints.add(clean(completion.system_fingerprint))
        usage = completion.usage
        if usage is None or usage.prompt_tokens is None or usage.completion_tokens is None:
            self.without_usage += 1
            return
        prompt, reply = usage.prompt_tokens_details, usage.completion_tokens_details
        self.tokens.update(
            prompt=usage.prompt_tokens,
            reply=usage.completion_tokens,
            cached=(prompt and prompt.cached_tokens) or 0,
            reasoning=(reply and reply.reasoning_tokens) or 0,
        )

    def cost(self, config: Config) -> float | None:
        """At the given prices, cached tokens at the full one; of replies that came with their counts."""
        if config.input_price is None or config.output_price is None:
            return None
        return (self.tokens["prompt"] * config.input_price + self.tokens["reply"] * config.output_price) / 1e6


@dataclass(frozen=True)
class _Call:
    """A question ready to be sent. No pictures but the encoded ones: the caller's can go."""

    item_id: str
    letters: Sequence[str]
    content: bytes
    sha256: str
    prepare_seconds: float


class OpenaiEngine:
    """Asks a served model; see the module.

    One question a group: each answer is written as it comes.
    """

    together = 1

    def __init__(self, model: ModelConfig, config: Config, note: Callable[[str, Any], None]) -> None:
        self.in_flight = config.concurrency
        self._config, self._note = config, note
        self._model = config.model or model.path
        self._ignored = {
            f"model.{name}": value
            for name in ("min_pixels", "max_pixels", "revision")
            if (value := getattr(model, name)) is not None
        }
        self._ledger = _Ledger()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._encoded: tuple[weakref.ref, Any, Pictures] | None = None
        self._noted = -math.inf

    def __enter__(self) -> OpenaiEngine:
        return self

    def start(self) -> None:
        """Read the key and open the client. Nothing is sent yet.

        Raises:
            ConfigError: the key's variable is not set or holds no key, or a package is missing.
        """
        key = _key(self._config.key_env)
        self._client = _client(self._config, key)
        self._turns = asyncio.Semaphore(self._config.concurrency)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="endpoint", daemon=True)
        self._thread.start()
        self._tell()

    def __exit__(self, *error: object) -> None:
        if self._loop is None:
            return
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = None
        self._tell()

    async def _end(self) -> None:
        waiting = asyncio.all_tasks() - {asyncio.current_task()}
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await self._client.close()

    def flush(self) -> None:
        """Nothing is held back here."""

    def submit(self, group: Sequence[Request]) -> Sequence[Future[Answer]]:
        """See `requests.Engine`. Frames are encoded here, so that the caller's pictures can go."""
        assert self._loop is not None, "start comes first"
        futures: list[Future[Answer]] = []
        for request in group:
            try:
                call = self._call(request)
            except DiagnosticsError as error:
                refused: Future[Answer] = Future()
                refused.set_exception(error)
                futures.append(refused)
            else:
                futures.append(asyncio.run_coroutine_threadsafe(self._answer(call), self._loop))
        return futures

    def _call(self, request: Request) -> _Call:
        started = time.perf_counter()
        config, prompt, item = self._config, request.prompt, request.item
        if prompt.frame_pixels is not None:
            raise ModelError(
                "The size that a served model sees frames at cannot be set from here.",
                remedy="Set reading.max_side, or the server's own limit by backend.extra_body.",
                item_id=item.id,
            )
        shown = self._pictures(request)
        body: dict[str, Any] = {
            "model": self._model,
            "messages": chat_messages(item, prompt.instruction, shown),
            "max_tokens": prompt.max_new_tokens,
            "temperature": 0,
            **shown.body,
        }
        if item.options and config.logprobs:
            body |= {"logprobs": True, "top_logprobs": config.logprobs}
        content = json.dumps(merged(body, config.extra_body)).encode()
        asked = json.dumps([body["messages"], shown.body], sort_keys=True).encode()
        digest = hashlib.sha256(asked).hexdigest()
        return _Call(item.id, item.letters, content, digest, time.perf_counter() - started)

    def _pictures(self, request: Request) -> Pictures:
        """The request's frames, encoded; those of the request before where they are the same."""
        frames, form, config = request.frames, request.prompt.form, self._config
        told = (frames.selection, form)
        if self._encoded is None or self._encoded[0]() is not frames.pixels or self._encoded[1] != told:
            shown = pictures(frames, form, config.frames, config.jpeg_quality, config.image_detail)
            self._encoded = (weakref.ref(frames.pixels), told, shown)
        return self._encoded[2]

    async def _answer(self, call: _Call) -> Answer:
        async with self._turns:
            retries: list[str] = []
            started = sent = time.perf_counter()

            def on_retry(reason: str) -> None:
                retries.append(f"retried: attempt {len(retries) + 2} after {reason}")
                self._ledger.retries[reason.partition(":")[0]] += 1

            self._ledger.requests += 1
            try:
                completion = await self._client.complete(call.content, on_retry)
            except DiagnosticsError as error:
                self._ledger.failed += 1
                raise error.about(call.item_id) from None
            finally:
                sent = time.perf_counter()
                if sent - self._noted > _NOTE_EVERY:
                    self._tell()
            self._ledger.count(completion, self._client.clean_name)
            return _answered(call, completion, retries, sent - started)

    def _tell(self) -> None:
        """Write the counts into the manifest."""
        self._noted = time.perf_counter()
        ledger, config = self._ledger, self._config
        self._note(
            "endpoint",
            {
                "base_url": config.base_url,
                "model": self._model,
                "served_as": sorted(ledger.served_as),
                "fingerprints": sorted(ledger.fingerprints),
                "not_sent": self._ignored,
                "requests": ledger.requests,
                "answered": ledger.answered,
                "failed": ledger.failed,
                "retries": dict(sorted(ledger.retries.items())),
                "tokens": dict(sorted(ledger.tokens.items())),
                "without_usage": ledger.without_usage,
                "cost": ledger.cost(config),
            },
        )


def _key(variable: str | None) -> str | None:
    """The key. Messages name the variable, never what it holds."""
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ConfigError(
            f"The environment variable {variable} (backend.key_env) is not set.",
            remedy=f"Put the endpoint's key into {variable}; backend.key_env=null sends none.",
        )
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError(
            f"The environment variable {variable} (backend.key_env) holds no key: it has spaces, line breaks "
            "or other characters that a header cannot hold.",
            remedy=f"Put the endpoint's key, and nothing else, into {variable}.",
        )
    return key


def _client(config: Config, key: str | None) -> ChatClient:
    try:
        from diagnostics.models.backends.chat_client import ChatClient, Limits
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"backend=openai needs the package {error.name}.", remedy='Install it: pip install ".[api]".'
        ) from error
    limits = Limits(
        timeout_seconds=config.timeout_seconds,
        max_retries=config.max_retries,
        backoff_seconds=config.backoff_seconds,
        longest_wait_seconds=config.longest_wait_seconds,
        concurrency=config.concurrency,
    )
    return ChatClient(config.base_url, key, config.key_env, limits)


def _answered(call: _Call, completion: Completion, retries: Sequence[str], seconds: float) -> Answer:
    from diagnostics.models.backends.chat_client import first_token

    choice, usage = completion.choices[0], completion.usage
    notices = [*retries]
    if choice.message.refusal:
        notices.append(f"refused: {choice.message.refusal}")
    if choice.finish_reason == "content_filter":
        notices.append("filtered: the endpoint's filter ended the reply")
    return Answer(
        text=(choice.message.content or "").strip(),
        option_logprobs=option_logprobs(call.letters, first_token(completion)),
        n_prompt_tokens=usage.prompt_tokens if usage else None,
        n_new_tokens=usage.completion_tokens if usage else None,
        prompt_sha256=call.sha256,
        cut=choice.finish_reason == "length",
        seconds={"prepare": call.prepare_seconds, "generate": seconds},
        notices=tuple(notices),
    )
