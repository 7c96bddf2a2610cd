"""health: the API answers, with the model, context limit and version that were deployed.

`/health` stays 200 while a follower node is dead until the next request; so this guard alone says
little, and first_token is never far behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from twinspark.guards.client import Plan
from twinspark.guards.context import EVERY, Guard
from twinspark.guards.model import Check, verdict
from twinspark.guards.system import ABSENT, version

if TYPE_CHECKING:
    from twinspark.guards.context import Context


class _Model(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)
    id: str
    max_model_len: int | None = None


class _Models(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)
    data: list[_Model] = Field(min_length=1)


class _Version(BaseModel):
    version: str


def run(context: Context) -> list[Check]:
    """Health, the served model and the engine's version."""
    node, settings = context.node, context.settings
    with context.client() as client:
        client.get("/health")
        models = client.fetch(_Models, "/v1/models").data
        served = client.fetch(_Version, "/version").version
    checks = [verdict("health", node, True, "200", "200")]
    expected = f"{settings.served_name}, {settings.max_model_len} tokens"
    actual = ", ".join(f"{model.id}, {model.max_model_len} tokens" for model in models)
    right = any(
        (model.id, model.max_model_len) == (settings.served_name, settings.max_model_len)
        for model in models
    )
    checks.append(verdict("health.model", node, right, expected, actual))
    installed = version("vllm")
    if installed != ABSENT:
        # the CPU build is installed as 0.27.1+cpu and serves as 0.27.1
        same = served.partition("+")[0] == installed.partition("+")[0]
        detail = "" if same else "the running engine is not the installed one: restart the unit"
        checks.append(verdict("health.version", node, same, installed, served, detail))
    return checks


GUARD = Guard(
    "health", "api", "the API answers with the deployed model and version", EVERY, run,
    lambda context: Plan(3, 0, 0, context.timeout, "GET /health, /v1/models, /version"),
)  # fmt: skip
