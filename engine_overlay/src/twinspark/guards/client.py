"""The guards' HTTP client: bounded in requests, tokens and time, with plain words for failures."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

import httpx

from twinspark.guards.wire import ChatReply, Completion, CompletionReply, Model, parse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from twinspark.guards.model import Kind

Prompt = str | list[int]
TOP_LOGPROBS: Final = 2  # the answer and its best rival: enough for a margin


class GuardError(Exception):
    """A request that gave no answer to judge; `kind` is the word for it."""

    kind: Kind = "broken"


class UnreachableError(GuardError):
    """No connection."""

    kind: Kind = "unreachable"


class SlowError(GuardError):
    """No answer within the limit."""

    kind: Kind = "slow"


class RefusedError(GuardError):
    """An HTTP status other than 2xx."""

    kind: Kind = "refused"


class ForeignError(RefusedError):
    """An HTTP status of 2xx with a body that is not what the API promises."""

    kind: Kind = "wrong"


class BudgetError(GuardError):
    """The guard tried to send more than its plan says: a defect of the guard."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The most that one guard may send.

    Attributes:
        requests: HTTP requests.
        prompt_tokens: Prompt tokens of all requests, cached ones included.
        completion_tokens: Completion tokens asked for.
        seconds: Limit for one request, in seconds.
        what: One line for the dry run.
    """

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 60.0
    what: str = ""

    def __add__(self, other: Plan) -> Plan:
        return Plan(
            self.requests + other.requests,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            max(self.seconds, other.seconds),
        )


NOTHING: Final = Plan()


@dataclass(slots=True)
class Spent:
    """What has been sent so far."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


def estimate_tokens(prompt: Prompt) -> int:
    """Tokens of a prompt: exact for ids; for text the larger of words + 1 and characters / 3."""
    if isinstance(prompt, str):
        return max(len(prompt.split()) + 1, len(prompt) // 3)
    return len(prompt)


class Client:
    """One guard's connection to the server; safe to use from several threads.

    Args:
        url: Base URL, `http://address:port`.
        model: Served model name.
        plan: What may be sent; more raises `BudgetError`.
    """

    def __init__(self, url: str, model: str, plan: Plan) -> None:
        self.url, self.model, self.plan, self.spent = url.rstrip("/"), model, plan, Spent()
        limits = httpx.Limits(max_connections=64)
        # trust_env: a proxy of the environment must not stand between a guard and its server
        self._http = httpx.Client(
            base_url=self.url, timeout=plan.seconds, limits=limits, trust_env=False
        )
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._http.close()

    def _book(self, prompt_tokens: int, completion_tokens: int) -> None:
        with self._lock:
            self.spent.requests += 1
            self.spent.prompt_tokens += prompt_tokens
            self.spent.completion_tokens += completion_tokens
            over = (
                self.spent.requests > self.plan.requests
                or self.spent.prompt_tokens > self.plan.prompt_tokens
                or self.spent.completion_tokens > self.plan.completion_tokens
            )
        if over:
            raise BudgetError(f"spent {self.spent}, planned {self.plan}: nothing more is sent")

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
        try:
            reply = self._http.request(method, path, json=body)
        except httpx.TimeoutException as error:
            raise SlowError(f"{path}: no answer within {self.plan.seconds:g} s") from error
        except httpx.TransportError as error:
            raise UnreachableError(f"{self.url}{path}: {error}") from error
        if not reply.is_success:
            raise RefusedError(f"{path}: HTTP {reply.status_code} {reply.text[:160].strip()}")
        return reply

    def get(self, path: str) -> httpx.Response:
        """GET a path of the server; counts as one request."""
        self._book(0, 0)
        return self._send("GET", path)

    def fetch(self, model: type[Model], path: str) -> Model:
        """GET a path and read its JSON."""
        return _read(model, self.get(path))

    def metrics(self) -> dict[str, float]:
        """`/metrics` as `name{labels}` -> value, the label `engine` and `model_name` left out."""
        return parse_metrics(self.get("/metrics").text)

    def tokenize(self, text: str) -> list[int]:
        """The server's own token ids of a text, special tokens included."""
        self._book(0, 0)
        reply = self._send("POST", "/tokenize", {"model": self.model, "prompt": text})
        try:
            body = reply.json()
        except ValueError as error:
            raise ForeignError(f"/tokenize: not JSON: {reply.text[:120]}") from error
        ids = body.get("tokens") if isinstance(body, dict) else None
        if not isinstance(ids, list) or not ids:
            raise ForeignError("/tokenize: no list of tokens in the answer")
        return [int(token) for token in ids]

    def complete(
        self, prompt: Prompt, max_tokens: int = 1, salt: str | None = None, **extra: object
    ) -> Completion:
        """One completion at temperature 0, with logprobs."""
        return self.complete_many([prompt], max_tokens, salt, **extra)[0]

    def complete_many(
        self, prompts: list[Prompt], max_tokens: int = 1, salt: str | None = None, **extra: object
    ) -> list[Completion]:
        """Several prompts in one request: the server schedules them together."""
        self._book(sum(map(estimate_tokens, prompts)), max_tokens * len(prompts))
        body: dict[str, Any] = {
            "model": self.model,
            "prompt": prompts[0] if len(prompts) == 1 else prompts,
            "max_tokens": max_tokens,
            "temperature": 0,
            "logprobs": TOP_LOGPROBS,
            **({"cache_salt": salt} if salt else {}),
            **extra,
        }
        started = time.monotonic()
        reply = _read(CompletionReply, self._send("POST", "/v1/completions", body))
        found = reply.completions(time.monotonic() - started)
        if len(found) != len(prompts):
            raise ForeignError(f"/v1/completions: {len(found)} answers to {len(prompts)} prompts")
        return found

    def chat(
        self,
        messages: list[dict[str, str]],
        max_tokens: int,
        salt: str | None = None,
        **extra: object,
    ) -> Completion:
        """One chat completion at temperature 0 (unless `extra` says otherwise)."""
        self._book(sum(estimate_tokens(message["content"]) + 8 for message in messages), max_tokens)
        body: dict[str, Any] = {
            "model": self.model,
            "messages": messages,
            "max_tokens": max_tokens,
            "temperature": 0,
            **({"cache_salt": salt} if salt else {}),
            **extra,
        }
        started = time.monotonic()
        reply = _read(ChatReply, self._send("POST", "/v1/chat/completions", body))
        return reply.completion(time.monotonic() - started)

    def stream(
        self, prompt: Prompt, max_tokens: int, salt: str | None = None, **extra: object
    ) -> Iterator[tuple[float, str]]:
        """Stream a completion.

        Yields:
            Seconds since the request was sent, and the text of the chunk.
        """
        self._book(estimate_tokens(prompt), max_tokens)
        body = {
            "model": self.model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0,
            "stream": True, **({"cache_salt": salt} if salt else {}), **extra,
        }  # fmt: skip
        started = time.monotonic()
        try:
            with self._http.stream("POST", "/v1/completions", json=body) as reply:
                if not reply.is_success:
                    raise RefusedError(f"/v1/completions: HTTP {reply.status_code}")
                for line in reply.iter_lines():
                    if line.startswith("data: {"):
                        choices = json.loads(line[6:]).get("choices") or [{}]
                        yield time.monotonic() - started, str(choices[0].get("text", ""))
        except httpx.TimeoutException as error:
            raise SlowError(f"stream: no chunk within {self.plan.seconds:g} s") from error
        except httpx.TransportError as error:
            raise UnreachableError(f"stream: {error}") from error


def _read(model: type[Model], reply: httpx.Response) -> Model:
    try:
        return parse(model, reply.text)
    except ValueError as error:
        raise ForeignError(f"{reply.url.path}: {error}") from error


def parse_metrics(exposition: str) -> dict[str, float]:
    """Prometheus text to values; series that differ only in engine or model name are summed."""
    values: dict[str, float] = {}
    for line in exposition.splitlines():
        if not line or line.startswith("#"):
            continue
        series, _, number = line.rpartition(" ")
        name, _, labels = series.partition("{")
        kept = [
            label
            for label in labels.rstrip("}").split(",")
            if label and not label.startswith(("engine=", "model_name="))
        ]
        key = f"{name}{{{','.join(kept)}}}" if kept else name
        try:
            values[key] = values.get(key, 0.0) + float(number)
        except ValueError:
            continue  # a label value with a space in it: not one of ours
    return values
