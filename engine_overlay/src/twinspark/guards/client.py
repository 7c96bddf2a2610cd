"""The guards' HTTP client: bounded in requests, tokens and time, with plain words for failures."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Self

import httpx

from twinspark.guards.wire import (
    ChatReply,
    Chunk,
    Completion,
    CompletionReply,
    Model,
    Tokens,
    parse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType

    from twinspark.guards.model import Kind

Prompt = str | list[int]
TOP_LOGPROBS: Final = 2  # the answer and its best rival: enough for a margin
# of one answer: far above 512 streamed tokens, and above /metrics
MOST_BYTES: Final = 8 * 2**20


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
    """An HTTP status other than 2xx, or an error in a stream that began with 2xx."""

    kind: Kind = "refused"


class ForeignError(GuardError):
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
        seconds: Limit for one request, in seconds, to the end of its answer.
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

    def _pieces(
        self, method: str, path: str, body: dict[str, Any] | None = None
    ) -> Iterator[bytes]:
        """The body of an answer as it comes.

        Raises:
            GuardError: There is none, or more of it than one answer may take.
        """
        limit, size, said = self.plan.seconds, 0, b""
        end = time.monotonic() + limit  # httpx limits each read, not their sum
        try:
            with self._http.stream(method, path, json=body) as reply:
                for piece in reply.iter_bytes():
                    size += len(piece)
                    if size > MOST_BYTES:
                        raise ForeignError(f"{path}: an answer of more than {MOST_BYTES:,} bytes")
                    if time.monotonic() > end:
                        raise SlowError(f"{path}: no end of the answer within {limit:g} s")
                    if reply.is_success:
                        yield piece
                    else:
                        said += piece
                if not reply.is_success:
                    why = said[:160].decode(errors="replace").strip()
                    raise RefusedError(f"{path}: HTTP {reply.status_code} {why}")
        except httpx.TimeoutException as error:
            raise SlowError(f"{path}: no answer within {limit:g} s") from error
        except httpx.DecodingError as error:
            raise ForeignError(f"{path}: not what the API promises: {error}") from error
        except httpx.TransportError as error:
            raise UnreachableError(f"{self.url}{path}: {error}") from error

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> str:
        return b"".join(self._pieces(method, path, body)).decode(errors="replace")

    def get(self, path: str) -> str:
        """GET a path of the server; counts as one request."""
        self._book(0, 0)
        return self._send("GET", path)

    def fetch(self, model: type[Model], path: str) -> Model:
        """GET a path and read its JSON."""
        return _read(model, path, self.get(path))

    def metrics(self) -> dict[str, float]:
        """`/metrics` as `name{labels}` -> value, the label `engine` and `model_name` left out."""
        return parse_metrics(self.get("/metrics"))

    def tokenize(self, text: str) -> list[int]:
        """The server's own token ids of a text, special tokens included."""
        self._book(0, 0)
        path, body = "/tokenize", {"model": self.model, "prompt": text}
        return _read(Tokens, path, self._send("POST", path, body)).tokens

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
        path = "/v1/completions"
        reply = _read(CompletionReply, path, self._send("POST", path, body))
        found = reply.completions(time.monotonic() - started)
        if len(found) != len(prompts):
            raise ForeignError(f"{path}: {len(found)} answers to {len(prompts)} prompts")
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
        path = "/v1/chat/completions"
        reply = _read(ChatReply, path, self._send("POST", path, body))
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
        started, path = time.monotonic(), "/v1/completions"
        for event in _events(self._pieces("POST", path, body)):
            chunk = _read(Chunk, path, event)
            if chunk.error:
                raise RefusedError(f"{path}: {chunk.error.message}")
            yield time.monotonic() - started, chunk.text


def _events(pieces: Iterable[bytes]) -> Iterator[str]:
    """What the `data:` lines of a stream carry, its `[DONE]` left out."""
    rest = b""
    for piece in chain(pieces, [b"\n"]):
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            data = line.removeprefix(b"data:").strip()
            if line.startswith(b"data:") and data != b"[DONE]":
                yield data.decode(errors="replace")


def _read(model: type[Model], path: str, body: str) -> Model:
    try:
        return parse(model, body)
    except ValueError as error:
        raise ForeignError(f"{path}: {error}") from error


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
