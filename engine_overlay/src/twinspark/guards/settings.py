"""What a node was told to serve: `serve.yaml`, `engine.env` and `node.env` of one variant."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

if TYPE_CHECKING:
    from pathlib import Path

FILES: Final = ("serve.yaml", "engine.env", "node.env")
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


def load(etc: Path) -> Settings:
    """Read the three files.

    Raises:
        SettingsError: One is missing or unreadable.
    """
    texts = {}
    for name in FILES:
        try:
            texts[name] = (etc / name).read_text(encoding="utf-8")
        except OSError as error:
            raise SettingsError(
                f"{etc / name}: {error.strerror}: is the variant deployed?"
            ) from error
    try:
        serve = _Serve.model_validate(yaml.safe_load(texts["serve.yaml"]))
    except (yaml.YAMLError, ValidationError) as error:
        raise SettingsError(f"{etc / 'serve.yaml'}: {error}") from error
    node_env = read_env(texts["node.env"], str(etc / "node.env"))
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
        rank=int(node_env.get("TWINSPARK_RANK", serve.node_rank)),
        nnodes=int(node_env.get("TWINSPARK_NNODES", serve.nnodes)),
        headless=serve.headless,
        engine_env=read_env(texts["engine.env"], str(etc / "engine.env")),
        node_env=node_env,
        sha256={name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()},
    )
