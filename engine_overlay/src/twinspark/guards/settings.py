"""What a node was told to serve: `serve.yaml`, `engine.env` and `node.env` of one variant."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from twinspark.guards.model import first_error

if TYPE_CHECKING:
    from pathlib import Path

FILES: Final = ("serve.yaml", "engine.env", "node.env")
_Model = TypeVar("_Model", bound=BaseModel)
DEFAULT_UNIT: Final = "vllm-deepseek-mxfp4@{variant}.service"


class SettingsError(Exception):
    """The rendered configuration cannot be read; the text names the file."""


class _Serve(BaseModel):
    """The flags of `vllm serve` that a guard needs; the others stay unread."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    model: str
    served_model_name: str | None = Field(None, alias="served-model-name")
    host: str = "127.0.0.1"
    port: int = 8000
    block_size: int | None = Field(None, alias="block-size")
    max_model_len: int = Field(4096, alias="max-model-len")
    max_num_seqs: int = Field(16, alias="max-num-seqs")
    max_num_batched_tokens: int = Field(2048, alias="max-num-batched-tokens")
    speculative_config: Any = Field(None, alias="speculative-config")
    node_rank: int = Field(0, alias="node-rank")
    nnodes: int = 1
    headless: bool = False


class _Node(BaseModel):
    """What `node.env` says over `serve.yaml`."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    rank: int = Field(alias="TWINSPARK_RANK", ge=0)
    nnodes: int = Field(alias="TWINSPARK_NNODES", ge=1)


@dataclass(frozen=True, slots=True)
class Settings:
    """One node's rendered configuration.

    Attributes:
        etc: Folder of the three files.
        variant: Its name.
        model: Path or name of the checkpoint.
        served_name: Name under which the API serves it.
        url: Base URL of the API.
        block_size: Tokens a KV block; None = the engine's default.
        max_model_len: Context limit, tokens.
        max_num_seqs: Sequences a step.
        max_num_batched_tokens: Tokens a step.
        speculates: Whether a draft is configured.
        rank: This node's rank.
        nnodes: Nodes of the server.
        headless: Whether this node has no API.
        engine_env: `engine.env`.
        node_env: `node.env`.
        sha256: Digest of each file.
    """

    etc: Path
    variant: str
    model: str
    served_name: str
    url: str
    block_size: int | None
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    speculates: bool
    rank: int
    nnodes: int
    headless: bool
    engine_env: dict[str, str]
    node_env: dict[str, str]
    sha256: dict[str, str]

    @property
    def environment(self) -> dict[str, str]:
        """Both env files, in the order in which the unit reads them."""
        return {**self.engine_env, **self.node_env}

    @property
    def unit(self) -> str:
        """The systemd unit that serves the variant."""
        return DEFAULT_UNIT.format(variant=self.variant)


def read_env(text: str, where: str) -> dict[str, str]:
    """Read an env file as the renderer writes it: comments, blank lines, KEY=VALUE, single quotes.

    Raises:
        SettingsError: A line is none of these.
    """
    values: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        key, equals, value = line.partition("=")
        if not equals or not key.isidentifier():
            raise SettingsError(f"{where}:{number}: not KEY=VALUE")
        quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "'\""
        values[key] = value[1:-1] if quoted else value
    return values


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}: is the variant deployed?") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise SettingsError(f"{path}:{line}: not UTF-8 text") from error


def _yaml(text: str, path: Path) -> object:
    try:
        return yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise SettingsError(f"{path}:{line}: {error.problem}") from error
    except (yaml.YAMLError, ValueError) as error:  # a character that YAML forbids; 2026-99-99
        raise SettingsError(f"{path}: {str(error).splitlines()[0]}") from error


def _checked(model: type[_Model], values: object, path: Path) -> _Model:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise SettingsError(f"{path}: {first_error(error)}") from error


def load(etc: Path) -> Settings:
    """Read the three files.

    Raises:
        SettingsError: One is missing or unreadable.
    """
    texts = {name: _text(etc / name) for name in FILES}
    serve_yaml = etc / "serve.yaml"
    serve = _checked(_Serve, _yaml(texts["serve.yaml"], serve_yaml), serve_yaml)
    node_env = read_env(texts["node.env"], str(etc / "node.env"))
    ranks = {"TWINSPARK_RANK": serve.node_rank, "TWINSPARK_NNODES": serve.nnodes, **node_env}
    node = _checked(_Node, ranks, etc / "node.env")
    host = "127.0.0.1" if serve.host in {"0.0.0.0", "::"} else serve.host  # noqa: S104 - compared
    return Settings(
        etc=etc,
        variant=node_env.get("TWINSPARK_VARIANT", etc.resolve().name),
        model=serve.model,
        served_name=serve.served_model_name or serve.model,
        url=f"http://{f'[{host}]' if ':' in host else host}:{serve.port}",
        block_size=serve.block_size,
        max_model_len=serve.max_model_len,
        max_num_seqs=serve.max_num_seqs,
        max_num_batched_tokens=serve.max_num_batched_tokens,
        speculates=bool(serve.speculative_config),
        rank=node.rank,
        nnodes=node.nnodes,
        headless=serve.headless,
        engine_env=read_env(texts["engine.env"], str(etc / "engine.env")),
        node_env=node_env,
        sha256={name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()},
    )
