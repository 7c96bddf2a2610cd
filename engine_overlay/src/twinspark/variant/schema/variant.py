"""The whole schema: the sections together, and the rules that look at more than one key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import PrivateAttr, model_validator

from twinspark.variant.rules import RuleError, broken_rules
from twinspark.variant.schema.capacity import Capacity
from twinspark.variant.schema.engine import Environment, Kernels, Speculation
from twinspark.variant.schema.network import Network
from twinspark.variant.schema.serving import Serving

if TYPE_CHECKING:
    from twinspark.variant.keys import Key


class Variant(Network, Environment, Kernels, Speculation, Capacity, Serving):
    """One deployment of the engine: everything that is equal on both nodes.

    Pydantic collects the fields of the bases from right to left, so the key table begins with
    `Serving`.
    """

    _name: str = PrivateAttr(default="unnamed")

    @model_validator(mode="after")
    def _rules_hold(self) -> Variant:
        if problems := broken_rules(self):
            raise RuleError(problems, self)
        return self

    @property
    def name(self) -> str:
        """The stem of the file that it was loaded from."""
        return self._name

    def named(self, name: str) -> Variant:
        """The same variant under a name."""
        self._name = name
        return self

    @property
    def is_deepseek(self) -> bool:
        """Whether this is the model that the project is about, on GPUs."""
        return self.MODEL_KIND == "deepseek-v4-flash"

    @property
    def draft_tokens(self) -> int:
        """Draft tokens a step; 0 without speculation."""
        return self.SPEC_TOKENS if self.is_deepseek and self.SPEC_METHOD != "none" else 0

    @property
    def in_flight_tokens(self) -> int:
        """Tokens scheduled and not settled: steps at once x tokens a step.

        Source: config/vllm.py:540-561@0.27.1.
        """
        steps = 2 if self.is_deepseek and self.ASYNC_SCHEDULING else 1
        return steps * self.MAX_NUM_BATCHED_TOKENS

    def takes(self, key: Key) -> bool:
        """Whether a key means anything for this model."""
        return key.scope in ("any", "deepseek" if self.is_deepseek else "lab")
