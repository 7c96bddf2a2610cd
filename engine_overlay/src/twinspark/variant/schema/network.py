"""Keys about NCCL that go to node.env, beside the host's own facts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from twinspark.variant.keys import Integer, Key, NodeEnv, Switch


class Network(BaseModel):
    """What NCCL is told about two RoCE functions of one cable."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    NCCL_IB_MERGE_NICS: Annotated[
        Switch,
        Field(description="Treat the two functions of the cable as one."),
        Key(
            NodeEnv("NCCL_IB_MERGE_NICS"),
            source="1 (Reed, nepenth, Mia); 0 (CO, in a ring)",
            scope="deepseek",
        ),
    ] = True
    NCCL_CUMEM_ENABLE: Annotated[
        Switch,
        Field(description="NCCL's cuMem allocations."),
        Key(
            NodeEnv("NCCL_CUMEM_ENABLE"),
            source="0 (all with two nodes); 1 (rings of four only)",
            scope="deepseek",
        ),
    ] = False
    NCCL_IB_ROCE_VERSION_NUM: Annotated[
        Integer,
        Field(description="RoCE version whose GID NCCL looks for.", ge=1, le=2),
        Key(NodeEnv("NCCL_IB_ROCE_VERSION_NUM"), source="2, agreed in the field", scope="deepseek"),
    ] = 2
    NCCL_DEBUG: Annotated[
        Literal["WARN", "INFO"],
        Field(description="How much NCCL writes to the journal."),
        Key(NodeEnv("NCCL_DEBUG"), source="WARN, agreed in the field", scope="deepseek"),
    ] = "WARN"
