"""Keys about the model, its names and its API."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from twinspark.variant.keys import AbsolutePath, Derived, Flag, Integer, Key, Name, Switch


class Serving(BaseModel):
    """What is served, under which name, and how a client talks to it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    MODEL_KIND: Annotated[
        Literal["deepseek-v4-flash", "lab-recall"],
        Field(description="Which model this is: decides which other keys and values are possible."),
        Key(
            Derived("the schema's own rules", "host"),
            source="the two models that this project serves",
        ),
    ] = "deepseek-v4-flash"
    MODEL: Annotated[
        AbsolutePath,
        Field(description="Folder of the checkpoint on the nodes."),
        Key(Flag("model"), source="layout of the nodes: /srv/models/<name>"),
    ] = "/srv/models/deepseek-v4-flash-0731"
    SERVED_MODEL_NAME: Annotated[
        Name,
        Field(description="Name that clients ask for."),
        Key(Flag("served-model-name"), source="the checkpoint's repository name"),
    ] = "deepseek-ai/DeepSeek-V4-Flash-0731"
    DTYPE: Annotated[
        Literal["auto", "bfloat16", "float32"],
        Field(description="Type of what is not quantized."),
        Key(
            Flag("dtype"),
            source="stock default auto (the checkpoint's bfloat16); the lab's answers are exact "
            "in float32",
        ),
    ] = "auto"
    TOKENIZER_MODE: Annotated[
        Literal["auto", "deepseek_v4"],
        Field(description="Tokenizer and chat encoding."),
        Key(
            Flag("tokenizer-mode"),
            source="config/model.py:85-95@0.27.1 picks it for this architecture; said aloud by "
            "nearly all of the field",
            scope="deepseek",
        ),
    ] = "deepseek_v4"
    TOOL_CALL_PARSER: Annotated[
        Literal["deepseek_v4", "none"],
        Field(description="Parser of tool calls; `none` switches automatic tool choice off."),
        Key(
            Derived("tool-call-parser and [no-]enable-auto-tool-choice"),
            source="tool_parsers/__init__.py:37@0.27.1 (the name is not deepseekv4); agreed in "
            "the field",
            scope="deepseek",
        ),
    ] = "deepseek_v4"
    REASONING_PARSER: Annotated[
        Literal["deepseek_v4"],
        Field(description="Parser of the model's reasoning."),
        Key(
            Flag("reasoning-parser"),
            source="reasoning/__init__.py:31@0.27.1; agreed in the field",
            scope="deepseek",
        ),
    ] = "deepseek_v4"
    TRUST_REMOTE_CODE: Annotated[
        Switch,
        Field(description="Run Python that comes with the checkpoint."),
        Key(
            Flag("trust-remote-code"),
            source="off: 0.27.1 has the model's own configuration class "
            "(transformers_utils/config.py:89); "
            "nearly all of the field switches it on without need",
            scope="deepseek",
        ),
    ] = False
    GENERATION_CONFIG: Annotated[
        Literal["auto", "vllm"],
        Field(
            description="Where default sampling values come from: the checkpoint (auto) or vLLM."
        ),
        Key(Flag("generation-config"), source="vllm, agreed in the field; stock default auto"),
    ] = "vllm"
    ENABLE_PROMPT_TOKENS_DETAILS: Annotated[
        Switch,
        Field(
            description="Say in `usage` how many prompt tokens came from the cache; the guards "
            "read it."
        ),
        Key(
            Flag("enable-prompt-tokens-details"),
            source="the recall guard compares cold and cached answers by it",
        ),
    ] = True
    API_PORT: Annotated[
        Integer,
        Field(description="Port of the API on the head's management address.", ge=1024, le=65535),
        Key(Flag("port"), source="stock default 8000"),
    ] = 8000
    MASTER_PORT: Annotated[
        Integer,
        Field(description="Port of the rendezvous on the head's first rail.", ge=1024, le=65535),
        Key(Flag("master-port"), source="29555 ran in the lab; the field 25000, stock 29501"),
    ] = 29555
