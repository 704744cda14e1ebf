"""A served model: what reaches the server, what is tried again and what is not, where the key goes."""

from __future__ import annotations

import base64
import email.utils
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest

from diagnostics.data.items import Turn
from diagnostics.errors import ConfigError, DiagnosticsError, EndpointError, EndpointUnusableError, ModelError
from diagnostics.models.backends import engine_settings, open_engine
from diagnostics.models.backends.chat_client import pause_of
from diagnostics.models.backends.chat_messages import media_clock, merged
from diagnostics.models.backends.openai import OpenaiEngine, option_logprobs
from diagnostics.models.backends.requests import Answer, PromptSettings, Request
from diagnostics.models.config import BackendConfig, ModelConfig
from diagnostics.models.prompting import question_text
from diagnostics.video.selection import Frames, Selection, Slot
from hooks.families import family_named

from .chat_server import Asked, ChatServer, Reply, completion, decoded, serving
from .conftest import a_question

KEY = "sk-test-0123456789abcdef"
INSTRUCTION = "Answer with one letter."
FAST = {"backoff_seconds": 0.01, "timeout_seconds": 20, "max_retries": 3}


def smooth(seconds: Sequence[float], fps: float = 25.0) -> Frames:
    """Pictures that a JPEG keeps nearly as they are, each another one."""
    rows, cols = np.mgrid[0:48, 0:64]
    pictures = [np.stack([rows * 4, cols * 3, rows + cols + 9 * n], -1) for n in range(len(seconds))]
    slots = tuple(Slot("v", round(s * fps), s, s) for s in seconds)
    return Frames(np.array(pictures, np.uint8), Selection(slots, "test", fps, 1000, 1000 / fps, len(slots)))


def a_request(frames: Frames | None = None, **changes: Any) -> Request:
    prompt = PromptSettings(INSTRUCTION, 6, **changes.pop("prompt", {}))
    return Request(a_question(**changes), {}, frames or smooth([0.0, 1.0]), prompt)


@contextmanager
def an_engine(server: ChatServer | str, **config: Any) -> Iterator[tuple[OpenaiEngine, dict[str, Any]]]:
    notes: dict[str, Any] = {}
    url = server if isinstance(server, str) else server.url
    model = ModelConfig(name="tiny", path="org/tiny")

    def load() -> Any:
        raise AssertionError("a served model is never loaded")

    settings = BackendConfig(name="openai", parameters={"base_url": url, **FAST, **config})
    with open_engine(load, model, settings, notes.__setitem__) as engine:
        assert isinstance(engine, OpenaiEngine)
        engine.start()
        yield engine, notes


def ask(server: ChatServer | str, request: Request | None = None, **config: Any) -> Answer:
    with an_engine(server, **config) as (engine, _):
        (future,) = engine.submit([request or a_request()])
        return future.result(60)


def error_of(server: ChatServer | str, **config: Any) -> DiagnosticsError:
    with pytest.raises(DiagnosticsError) as caught:
        ask(server, **config)
    return caught.value


# -- what reaches the server


def test_frames_reach_it_as_images_each_with_its_time() -> None:
    frames = smooth([0.0, 1.04, 12.34, 39.9])
    with serving([]) as server:
        ask(server, a_request(frames))
    (call,) = server.asked
    assert call.path == "/v1/chat/completions"
    (message,) = call.body["messages"]
    parts = message["content"]
    assert [part["text"] for part in parts[:-1:2]] == [
        "<0.0 seconds>", "<1.0 seconds>", "<12.3 seconds>", "<39.9 seconds>",
    ]  # fmt: skip
    for part, expected in zip(parts[1:-1:2], frames.pixels, strict=True):
        assert part["image_url"]["url"].startswith("data:image/jpeg;base64,")
        (seen,) = decoded(part["image_url"]["url"])
        assert np.abs(seen.astype(int) - expected).max() <= 4, "levels of 255, quality 95"
    assert parts[-1]["text"] == question_text(a_question(), INSTRUCTION)[2], "as every engine asks"
    assert {name: call.body[name] for name in ("model", "max_tokens", "temperature")} == {
        "model": "org/tiny", "max_tokens": 6, "temperature": 0,
    }  # fmt: skip
    assert (call.body["logprobs"], call.body["top_logprobs"]) == (True, 20)


def times_told(body: dict[str, Any]) -> np.ndarray:
    """Seconds, as the server's processor computes them."""
    told = body["media_io_kwargs"]["video"]
    return np.array(told["frames_indices"]) / told["fps"]


def test_frames_reach_it_as_a_video_with_the_sources_clock() -> None:
    frames = smooth([0.0, 1.04, 12.36, 39.92])
    with serving([]) as server:
        ask(server, a_request(frames), frames="video")
    (call,) = server.asked
    shown, text = call.body["messages"][0]["content"]
    assert (shown["type"], text["type"]) == ("video_url", "text")
    assert shown["video_url"]["url"].startswith("data:video/jpeg;base64,")
    seen = np.array(decoded(shown["video_url"]["url"]))
    assert seen.shape == frames.pixels.shape
    assert np.abs(seen.astype(int) - frames.pixels).max() <= 4
    told = call.body["media_io_kwargs"]["video"]
    assert told == {
        "num_frames": -1, "fps": 25.0, "frames_indices": [0, 26, 309, 998], "total_num_frames": 1000,
        "duration": 40.0,
    }  # fmt: skip
    (ours,) = family_named("qwen3_vl").video_arguments(frames.selection)["video_metadata"]
    assert told["frames_indices"] == ours["frames_indices"].tolist(), "as transformers is told"


@pytest.mark.parametrize("kind", ["another clock", "blank", "repeated"])
def test_times_that_no_frame_number_gives_are_told_in_milliseconds(kind: str) -> None:
    frames = smooth([0.0, 1.04, 12.36, 39.92])
    slots = list(frames.selection.slots)
    if kind == "another clock":
        slots = [replace(slot, shown_seconds=1.37 * slot.true_seconds + 0.2) for slot in slots]
    if kind == "blank":
        slots[1] = Slot("blank", -1, math.nan, 7.0)
    if kind == "repeated":
        slots = [replace(slots[0], shown_seconds=float(n)) for n in range(4)]
    selection = replace(frames.selection, slots=tuple(slots), source_frames=3, source_seconds=0.12)
    with serving([]) as server:
        ask(server, a_request(Frames(frames.pixels, selection)), frames="video")
    body = server.asked[0].body
    np.testing.assert_allclose(times_told(body), selection.shown_seconds, rtol=0, atol=5e-4)
    told = body["media_io_kwargs"]["video"]
    assert all(isinstance(index, int) for index in told["frames_indices"]), "the server takes whole numbers"
    assert told["total_num_frames"] > max(told["frames_indices"])
    assert told["total_num_frames"] >= len(slots)


def test_a_video_without_times_is_refused_and_images_are_shown_without() -> None:
    frames = smooth([0.0, 1.0])
    slots = (frames.selection.slots[0], replace(frames.selection.slots[1], shown_seconds=math.nan))
    untimed = Frames(frames.pixels, replace(frames.selection, slots=slots))
    with pytest.raises(ModelError, match="no time"):
        media_clock(untimed.selection)
    with serving([]) as server:
        ask(server, a_request(untimed))
        ask(server, a_request(frames, prompt={"form": "images"}))
        ask(server, a_request(frames, prompt={"form": "nothing"}))
    kinds = [call.body["messages"][0]["content"] for call in server.asked]
    assert [part["type"] for part in kinds[0]] == ["text", "image_url", "image_url", "text"]
    assert [part["type"] for part in kinds[1]] == ["image_url", "image_url", "text"]
    assert kinds[2] == question_text(a_question(), INSTRUCTION)[2]


def test_earlier_turns_and_open_questions() -> None:
    turns = (Turn("user", "Is there a lesion?"), Turn("assistant", "Yes, one."))
    with serving([]) as server:
        ask(server, a_request(turns=turns, options=(), answer=None))
    body = server.asked[0].body
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    assert body["messages"][0]["content"][-1] == {"type": "text", "text": "Is there a lesion?"}
    assert body["messages"][-1]["content"] == "What colour is the lesion?"
    assert "logprobs" not in body, "there is no letter to look at"


def test_further_keys_are_merged_and_null_takes_one_away() -> None:
    extra = {
        "temperature": None, "max_tokens": None, "max_completion_tokens": 9,
        "mm_processor_kwargs": {"max_pixels": 99}, "media_io_kwargs": {"video": {"num_frames": 4}},
    }  # fmt: skip
    with serving([]) as server:
        ask(server, frames="video", extra_body=extra, model="other", logprobs=0, image_detail="low")
        ask(server, image_detail="low")
    body = server.asked[0].body
    assert not {"temperature", "max_tokens", "logprobs", "top_logprobs"} & set(body)
    assert (body["max_completion_tokens"], body["model"]) == (9, "other")
    assert body["mm_processor_kwargs"] == {"max_pixels": 99}
    assert body["media_io_kwargs"]["video"]["num_frames"] == 4
    assert body["media_io_kwargs"]["video"]["frames_indices"] == [0, 25]
    assert server.asked[1].body["messages"][0]["content"][1]["image_url"]["detail"] == "low"
    assert merged({"a": {"b": 1, "c": 2}}, {"a": {"b": None}}) == {"a": {"c": 2}}
    with pytest.raises(ConfigError, match="messages"):
        engine_settings(
            BackendConfig("openai", parameters={"base_url": "http://h/v1", "extra_body": {"messages": []}})
        )


def test_frames_of_questions_about_the_same_pictures_are_encoded_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from diagnostics.models.backends import openai

    plain, encoded = openai.pictures, []

    def counted(*arguments: Any) -> Any:
        encoded.append(arguments)
        return plain(*arguments)

    monkeypatch.setattr(openai, "pictures", counted)
    frames = smooth([0.0, 1.0])
    later = Frames(frames.pixels, replace(frames.selection, rule="another"))
    with serving([]) as server, an_engine(server) as (engine, _):
        for request in (a_request(frames), a_request(frames, id="r"), a_request(later), a_request()):
            engine.submit([request])[0].result(60)
    assert len(encoded) == 3, "the same, another selection, other pictures"


# -- what comes back


def test_an_answer_holds_what_the_server_told() -> None:
    body = completion(" B. blue\n")
    body["choices"][0]["finish_reason"] = "length"
    with serving([Reply(body)]) as server:
        told = ask(server)
    assert told.text == "B. blue"
    assert told.option_logprobs == (-0.5, -1.5, -2.5)
    assert (told.n_prompt_tokens, told.n_new_tokens, told.cut) == (100, 2, True)
    assert told.notices == ()
    assert set(told.seconds) == {"prepare", "generate"}


@pytest.mark.parametrize("content", ["", None])
def test_an_empty_reply_is_an_answer(content: str | None) -> None:
    with serving([Reply(completion(content, usage=None))]) as server:
        told = ask(server)
    assert (told.text, told.n_prompt_tokens, told.notices) == ("", None, ())
    assert len(server.asked) == 1


def test_a_refusal_and_a_filter_are_told() -> None:
    body = completion(None)
    body["choices"][0] |= {"finish_reason": "content_filter"}
    body["choices"][0]["message"]["refusal"] = "I cannot look at this."
    with serving([Reply(body)]) as server:
        told = ask(server)
    assert told.text == ""
    assert [notice.partition(":")[0] for notice in told.notices] == ["refused", "filtered"]


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ([("A", -0.1), ("B", -2.0)], (-0.1, -2.0)),
        ([("B", -2.0), ("The", -0.1), ("A", -3.0)], (-3.0, -2.0)),
        ([("A", -0.1), (" B", -2.0)], ()),
        ([("A", -0.1)], ()),
        ([("A", -0.1), ("B", -2.0), ("A", -0.2)], ()),
        ([("A", -0.1), ("B", -9999.0)], ()),
        ([("A", -0.1), ("B", -math.inf)], ()),
        ([], ()),
    ],
)
def test_option_logprobs_are_those_of_all_letters_or_none(
    told: list[tuple[str, float]], expected: tuple[float, ...]
) -> None:
    assert option_logprobs("AB", told) == expected


@pytest.mark.parametrize(
    "logprobs",
    [None, {"content": None}, {"content": []}, {"tokens": ["A"]}, {"content": [{"token": 3}]}, "x"],
)
def test_log_probabilities_in_no_known_form_are_none(logprobs: Any) -> None:
    body = completion()
    body["choices"][0]["logprobs"] = logprobs
    with serving([Reply(body)]) as server:
        told = ask(server)
    assert (told.text, told.option_logprobs) == ("A", ())


def test_counts_cost_and_names_are_noted() -> None:
    usage = {
        "prompt_tokens": 1000, "completion_tokens": 50,
        "prompt_tokens_details": {"cached_tokens": 600},
        "completion_tokens_details": {"reasoning_tokens": 40},
    }  # fmt: skip
    plan = [Reply(status=503), Reply(completion(usage=usage)), Reply(), Reply(completion(usage=None))]
    with (
        serving([*plan, Reply(status=400)]) as server,
        an_engine(server, concurrency=1, input_price=2.0, output_price=10.0) as (engine, notes),
    ):
        futures = [engine.submit([a_request(id=str(n))])[0] for n in range(4)]
        assert isinstance(futures[-1].exception(60), EndpointError)
    assert notes["endpoint"] == {
        "base_url": server.url, "model": "org/tiny", "served_as": ["served-name"], "fingerprints": ["fp_1"],
        "not_sent": {}, "requests": 4, "answered": 3, "failed": 1, "retries": {"HTTP 503": 1},
        "tokens": {"prompt": 1100, "reply": 52, "cached": 600, "reasoning": 40}, "without_usage": 1,
        "cost": pytest.approx((1100 * 2.0 + 52 * 10.0) / 1e6),
    }  # fmt: skip


# -- what is tried again


PASSING: dict[str, Reply] = {
    "429": Reply({"error": {"message": "slow down"}}, 429),
    "408": Reply({}, 408),
    "409": Reply({}, 409),
    "425": Reply({}, 425),
    "500": Reply(b"<html>Internal Server Error</html>", 500),
    "503": Reply({}, 503),
    "529": Reply({}, 529),
    "cut": Reply(cut=True),
    "malformed": Reply(b'{"choices": [{"mess'),
    "not a completion": Reply({"error": {"message": "upstream died", "code": 502}}),
    "no choice": Reply({"choices": []}),
    "nothing": Reply(b""),
    "not JSON": Reply(b"\xff\xfe"),
}


@pytest.mark.parametrize("kind", PASSING)
def test_what_may_pass_is_tried_again_and_told(kind: str) -> None:
    with serving([PASSING[kind], PASSING[kind]]) as server:
        told = ask(server)
    assert told.text == "A"
    assert len(server.asked) == 3
    assert len({str(call.body) for call in server.asked}) == 1, "the same question each time"
    assert [notice.partition(" after ")[0] for notice in told.notices] == [
        "retried: attempt 2", "retried: attempt 3",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", PASSING)
def test_what_does_not_pass_costs_the_item(kind: str) -> None:
    with serving([PASSING[kind]] * 10) as server:
        error = error_of(server, max_retries=2)
    assert type(error) is EndpointError
    assert error.item_id == "q"
    assert "3 attempts" in error.problem
    assert len(server.asked) == 3


@pytest.mark.parametrize("drip", [False, True])
def test_a_hang_is_bounded(drip: bool) -> None:
    """The server says nothing, or one byte after another without end."""
    released = threading.Event()
    stuck = Reply(drip=True) if drip else Reply(wait=lambda: released.wait(60))
    with serving([stuck]) as server:
        try:
            told = ask(server, timeout_seconds=0.4)
        finally:
            released.set()
    assert told.notices == ("retried: attempt 2 after no answer within 0.4 s",)


def test_a_slow_answer_is_waited_for() -> None:
    with serving([Reply(wait=lambda: time.sleep(0.7))]) as server:
        assert ask(server).notices == ()
    assert len(server.asked) == 1


def test_the_next_attempt_waits_as_long_as_the_server_asks() -> None:
    plan = [
        Reply({}, 429, {"Retry-After": "1"}),
        Reply({}, 503, {"retry-after-ms": "600", "Retry-After": "30"}),
        Reply({}, 429, {"Retry-After": email.utils.formatdate(time.time() + 3, usegmt=True)}),
    ]
    with serving(plan) as server:
        ask(server)
    times = [call.at for call in server.asked]
    pauses = np.diff(times)
    assert (pauses >= [0.99, 0.59, 0.9]).all(), pauses  # a date has whole seconds


def headers(asked: str, date: str | None = None) -> httpx.Headers:
    return httpx.Headers({"Retry-After": asked} | ({} if date is None else {"Date": date}))


def test_dates_are_compared_with_the_servers_clock() -> None:
    """Which may be an hour off ours."""
    later = email.utils.formatdate(time.time() + 3600 + 20, usegmt=True)
    date = email.utils.formatdate(time.time() + 3600, usegmt=True)
    assert pause_of(headers(later, date)) == pytest.approx(20, abs=1)
    assert pause_of(headers(date)) == pytest.approx(3600, abs=2), "ours, where it tells none"
    assert pause_of(headers(date, later)) == 0.0
    assert pause_of(headers(" 7.5 ")) == 7.5
    for odd in ("soon", "-3", "", "nan", "1e9x"):
        assert pause_of(headers(odd)) is None, odd


def test_pauses_grow_and_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """1, 2, 4... seconds up to a minute, and a random part of up to one."""
    import asyncio

    pauses: list[float] = []
    plain = asyncio.sleep

    async def noted(seconds: float, *rest: Any) -> None:
        pauses.append(seconds)
        await plain(0)

    monkeypatch.setattr(asyncio, "sleep", noted)
    with serving([Reply({}, 500)] * 8) as server:
        ask(server, backoff_seconds=1.0, max_retries=8)
    base = np.minimum(2.0 ** np.arange(8), 60)
    assert len(pauses) == 8
    assert (pauses >= base).all(), pauses
    assert (pauses <= base + 1).all(), pauses
    assert len(set(pauses[:6])) == 6


# -- what is not


@pytest.mark.parametrize("status", [400, 413, 415, 422])
def test_a_refused_request_costs_the_item_at_once(status: int) -> None:
    said = "At most 5 image(s) may be provided in one prompt."
    with serving([Reply({"error": {"message": said, "code": status}}, status)]) as server:
        error = error_of(server)
    assert type(error) is EndpointError
    assert said in error.problem
    assert len(server.asked) == 1


@pytest.mark.parametrize("status", [301, 401, 402, 403, 404, 405])
def test_what_no_item_would_pass_ends_the_run(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", KEY)
    body = {"error": {"message": f"Incorrect API key provided: {KEY[:6]}***{KEY[-4:]}."}}
    with serving([Reply(body, status, {"Location": "http://127.0.0.1:9/"})]) as server:
        error = error_of(server, key_env="SOME_KEY")
    assert isinstance(error, EndpointUnusableError)
    assert len(server.asked) == 1
    if status in (401, 403):
        assert "SOME_KEY" in str(error)
        assert KEY[-4:] not in str(error), "not even a part of the key"


def test_no_key_was_sent_is_said() -> None:
    with serving([Reply({}, 401)]) as server:
        error = error_of(server)
    assert "Authorization" not in server.asked[0].headers
    assert "key_env" in error.remedy


def test_an_empty_account_ends_the_run() -> None:
    body = {"error": {"message": "You exceeded your quota.", "code": "insufficient_quota"}}
    with serving([Reply(body, 429)]) as server:
        assert isinstance(error_of(server), EndpointUnusableError)
    assert len(server.asked) == 1


def test_a_pause_beyond_the_limit_ends_the_run() -> None:
    with serving([Reply({}, 429, {"Retry-After": "86400"})]) as server:
        error = error_of(server)
    assert isinstance(error, EndpointUnusableError)
    assert "86400 s" in error.problem


def test_nobody_there_ends_the_run() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        error = error_of(f"http://127.0.0.1:{taken.getsockname()[1]}/v1", max_retries=1)
    assert isinstance(error, EndpointUnusableError)
    assert "2 attempts" in error.problem


# -- the key


def echo(status: int) -> Callable[[Asked], Reply]:
    """Says what it was sent."""

    def behave(call: Asked) -> Reply:
        said = f"bad request with headers {call.headers} and body {call.body}"
        return Reply({"error": {"message": said}}, status)

    return behave


@pytest.mark.parametrize("status", [200, 400, 401, 402, 404, 500])
def test_the_key_and_pictures_are_in_no_message(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", f" {KEY}\n")
    with (
        serving(echo(status)) as server,
        an_engine(server, key_env="SOME_KEY", max_retries=1) as (engine, notes),
    ):
        (future,) = engine.submit([a_request()])
        error = future.exception(60)
    assert error is not None
    assert server.asked[0].headers["Authorization"] == f"Bearer {KEY}"
    told = f"{error} {error!r} {error.__cause__} {notes}"
    assert KEY not in told
    assert base64.b64encode(b"\xff\xd8\xff").decode() not in told
    assert len(str(error)) < 1000


def test_a_key_without_a_known_form_is_taken_out_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "plain-words-as-a-key")
    body = {"message": "plain-words-as-a-key may not. Nor may sk-proj-abcdefgh or Bearer abc."}
    with serving([Reply(body, 400)]) as server:
        error = error_of(server, key_env="SOME_KEY")
    assert "HTTP 400: *** may not. Nor may *** or ***" in error.problem


@pytest.mark.parametrize("value", [None, "", "  ", "two words", "line\nbreak", "schlüssel"])
def test_a_key_that_cannot_be_is_told_by_its_name(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if value is None:
        monkeypatch.delenv("SOME_KEY", raising=False)
    else:
        monkeypatch.setenv("SOME_KEY", value)
    with serving([]) as server:
        error = error_of(server, key_env="SOME_KEY")
    assert isinstance(error, ConfigError)
    assert "SOME_KEY" in error.problem
    assert not (value and value.strip() and value in str(error))
    assert not server.asked


@pytest.mark.parametrize(
    "url",
    [
        f"http://user:{KEY}@host/v1", f"http://{KEY}@host/v1", f"http://host/v1?key={KEY}",
        f"http://host/v1#{KEY}", f"ftp://host/{KEY}", f"{KEY}", f"http:///{KEY}", f"http://host:99999/{KEY}",
    ],
)  # fmt: skip
def test_an_address_that_is_none_or_holds_a_secret_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        engine_settings(BackendConfig("openai", parameters={"base_url": url}))
    assert KEY not in str(caught.value)
    assert "base_url" in str(caught.value)


# -- many at once


def test_so_many_are_under_way_and_no_more() -> None:
    """Each call is held until three are inside, so that three are reached; the server counts them."""
    gate = threading.Barrier(3)
    with (
        serving(lambda call: Reply(wait=lambda: gate.wait(60))) as server,
        an_engine(server, concurrency=3) as (engine, _),
    ):
        futures = [engine.submit([a_request(id=str(n))])[0] for n in range(12)]
        assert [future.result(60).text for future in futures] == ["A"] * 12
    assert (engine.together, engine.in_flight) == (1, 3)
    assert server.most_inside == 3


def test_leaving_ends_what_waits_and_what_hangs() -> None:
    """Within the limit of a test, though each would hang for an hour."""
    released = threading.Event()
    with serving(lambda call: Reply(wait=lambda: released.wait(300))) as server:
        try:
            with an_engine(server, concurrency=2, timeout_seconds=3600) as (engine, notes):
                futures = [engine.submit([a_request(id=str(n))])[0] for n in range(5)]
                deadline = time.monotonic() + 60
                while len(server.asked) < 2 and time.monotonic() < deadline:
                    time.sleep(0.01)
            assert all(future.cancelled() for future in futures)
            assert not [thread for thread in threading.enumerate() if thread.name == "endpoint"]
        finally:
            released.set()
    assert (notes["endpoint"]["requests"], notes["endpoint"]["answered"]) == (2, 0)


def test_one_bad_question_does_not_cost_the_others() -> None:
    def behave(call: Asked) -> Reply:
        return Reply({"error": {"message": "no"}}, 400) if "bad" in call.question else Reply()

    with serving(behave) as server, an_engine(server) as (engine, _):
        futures = [engine.submit([a_request(id=q, question=q)])[0] for q in ("good", "bad", "fine")]
        errors = [future.exception(60) for future in futures]
    assert [type(error) for error in errors] == [type(None), EndpointError, type(None)]


def test_the_size_frames_are_seen_at_is_not_pretended() -> None:
    with serving([]) as server, pytest.raises(ModelError, match="size"):
        ask(server, a_request(prompt={"frame_pixels": 1000}))
    assert not server.asked


def test_what_is_not_sent_is_noted() -> None:
    notes: dict[str, Any] = {}
    model = ModelConfig(name="tiny", path="tiny", max_pixels=5, revision="abc")
    settings = BackendConfig("openai", parameters={"base_url": "http://127.0.0.1:9/v1"})
    with open_engine(lambda: None, model, settings, notes.__setitem__) as engine:  # type: ignore[arg-type, return-value]
        assert notes == {}, "an engine that was never started has nothing to say"
        engine.start()
    assert notes["endpoint"]["not_sent"] == {"model.max_pixels": 5, "model.revision": "abc"}
