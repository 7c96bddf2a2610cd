"""The server's JSON, checked where it enters, as plain records."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from twinspark.guards.model import first_error

Model = TypeVar("Model", bound=BaseModel)
# nats: no probability is above 1 (but for rounding), and vLLM writes -9999 for 0
Logprob = Annotated[float, Field(ge=-1e5, le=1e-3)]


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer.

    Attributes:
        text: The content; for a chat without its reasoning.
        reasoning: The reasoning of a chat, where the server separates it.
        tokens: Token strings; empty when logprobs were not asked for.
        logprobs: Logprob of each token, nats.
        margins: Logprob of each token less that of its best rival, nats; NaN without a rival.
        finish_reason: `stop`, `length`, `tool_calls`.
        prompt_tokens: Tokens of the request (of all its prompts together).
        cached_tokens: Tokens taken from the prefix cache; None when the server does not tell.
        completion_tokens: Tokens generated (for all prompts of the request together).
        seconds: Wall time of the request.
        tool_calls: `name(arguments)` of each tool call.
    """

    text: str
    tokens: tuple[str, ...]
    logprobs: tuple[float, ...]
    margins: tuple[float, ...]
    finish_reason: str
    prompt_tokens: int
    cached_tokens: int | None
    completion_tokens: int
    seconds: float
    reasoning: str = ""
    tool_calls: tuple[tuple[str, str], ...] = ()

    @property
    def truncated(self) -> bool:
        """Whether it ended at its token limit."""
        return self.finish_reason == "length"


class _Wire(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _PromptDetails(_Wire):
    cached_tokens: int | None = None


class _Usage(_Wire):
    prompt_tokens: int = 0
    completion_tokens: int | None = 0
    prompt_tokens_details: _PromptDetails | None = None

    @property
    def cached(self) -> int | None:
        return self.prompt_tokens_details.cached_tokens if self.prompt_tokens_details else None


class _Logprobs(_Wire):
    tokens: list[str] = []
    token_logprobs: list[Logprob | None] = []
    top_logprobs: list[dict[str, Logprob] | None] = []


class _Choice(_Wire):
    index: int = 0
    text: str = ""
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None


class CompletionReply(_Wire):
    """`/v1/completions`."""

    choices: list[_Choice] = Field(min_length=1)
    usage: _Usage = _Usage()

    def completions(self, seconds: float) -> list[Completion]:
        """The answers in the order of their prompts."""
        found = []
        for choice in sorted(self.choices, key=lambda one: one.index):
            given = choice.logprobs or _Logprobs()
            logprobs = tuple(math.nan if lp is None else lp for lp in given.token_logprobs)
            margins = tuple(
                _margin(token, logprob, top or {})
                for token, logprob, top in zip(
                    given.tokens, logprobs, given.top_logprobs, strict=False
                )
            )
            found.append(
                Completion(
                    choice.text,
                    tuple(given.tokens),
                    logprobs,
                    margins,
                    choice.finish_reason or "",
                    self.usage.prompt_tokens,
                    self.usage.cached,
                    self.usage.completion_tokens or 0,
                    seconds,
                )
            )
        return found


class _Error(_Wire):
    message: str


class Chunk(_Wire):
    """One event of a streamed `/v1/completions`: text, or why no more comes."""

    choices: list[_Choice] = []
    error: _Error | None = None

    @property
    def text(self) -> str:
        """Its text; empty in the last event, which carries the usage."""
        return "".join(choice.text for choice in self.choices)


class Tokens(_Wire):
    """`/tokenize`."""

    tokens: list[int] = Field(min_length=1)


class _ChatTop(_Wire):
    token: str
    logprob: Logprob


class _ChatToken(_ChatTop):
    top_logprobs: list[_ChatTop] = []


class _ChatLogprobs(_Wire):
    content: list[_ChatToken] | None = None


class _Function(_Wire):
    name: str = ""
    arguments: str = ""


class _ToolCall(_Wire):
    function: _Function = _Function()


class _Message(_Wire):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _ChatChoice(_Wire):
    message: _Message
    finish_reason: str | None = None
    logprobs: _ChatLogprobs | None = None


class ChatReply(_Wire):
    """`/v1/chat/completions`."""

    choices: list[_ChatChoice] = Field(min_length=1)
    usage: _Usage = _Usage()

    def completion(self, seconds: float) -> Completion:
        """The first choice."""
        choice = self.choices[0]
        content = (choice.logprobs.content if choice.logprobs else None) or []
        message = choice.message
        calls = ((call.function.name, call.function.arguments) for call in message.tool_calls or [])
        return Completion(
            message.content or "",
            tuple(token.token for token in content),
            tuple(token.logprob for token in content),
            tuple(
                _margin(
                    token.token, token.logprob, {t.token: t.logprob for t in token.top_logprobs}
                )
                for token in content
            ),
            choice.finish_reason or "",
            self.usage.prompt_tokens,
            self.usage.cached,
            self.usage.completion_tokens or 0,
            seconds,
            message.reasoning or message.reasoning_content or "",
            tuple(calls),
        )


def _margin(token: str, logprob: float, top: dict[str, float]) -> float:
    rivals = [value for name, value in top.items() if name != token]
    return logprob - max(rivals) if rivals else math.nan


def parse(model: type[Model], body: str) -> Model:
    """Read a reply.

    Raises:
        ValueError: The body is not what the API promises.
    """
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise ValueError(
            f"not what the API promises: {first_error(error)}: {body[:120]}"
        ) from error
