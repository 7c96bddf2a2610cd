"""Tile configurations, what they cost on a card, and the choice among those that fit."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# CUDA's limits for compute capability 12.x
SM121_SHARED_BYTES = 101_376  # a block may take
SM121_REGISTERS = 65_536  # 32-bit registers of one multiprocessor
SM121_SHARED_SM = 102_400  # bytes of one multiprocessor
SM121_SHARED_RESERVED = 1_024  # bytes CUDA takes of each resident block
SM121_WARPS = 48  # resident warps of one multiprocessor


@dataclass(frozen=True, slots=True)
class Config:
    """One way to tile an operation; its list of them says what m, n and k count there.

    Attributes:
        m: Rows a program (query rows, tokens, ...).
        n: Columns a program or a step of its loop.
        k: Depth of one step of the loop; 0 where the depth is not tiled.
        warps: Warps a program.
        stages: Software-pipelining depth of the loop.
        tma: Tiles come through tensor descriptors rather than pointers.
        maxnreg: Cap on registers a thread; 0 leaves it to ptxas.
        lean: Only the matrix operands are pipelined, not the scales beside them.
        waves: Rounds of resident programs the work is cut into, where an operation cuts it; 0: its
            own default.
    """

    m: int
    n: int
    k: int = 0
    warps: int = 4
    stages: int = 2
    tma: bool = False
    maxnreg: int = 0
    lean: bool = False
    waves: int = 0

    @property
    def key(self) -> str:
        """Short stable name, for tables."""
        text = f"m{self.m}n{self.n}k{self.k}w{self.warps}s{self.stages}"
        text += "tma" if self.tma else "ptr"
        text += f"r{self.maxnreg}" if self.maxnreg else ""
        return text + ("lean" if self.lean else "") + (f"v{self.waves}" if self.waves else "")

    def options(self) -> dict[str, int]:
        """Launch options Triton takes beside the kernel's arguments."""
        options = {"num_warps": self.warps, "num_stages": self.stages}
        return options | ({"maxnreg": self.maxnreg} if self.maxnreg else {})


@dataclass(frozen=True, slots=True)
class Resources:
    """What ptxas says one compiled configuration takes.

    Attributes:
        op: Operation.
        config: Configuration.
        registers: 32-bit registers a thread.
        shared: Bytes of shared memory a block, static and dynamic.
        spills: Bytes spilled, stores plus loads.
        local: Bytes of local memory (stack frame) a thread.
    """

    op: str
    config: Config
    registers: int
    shared: int
    spills: int
    local: int


def fits(resources: Resources, shared_limit: int = SM121_SHARED_BYTES) -> bool:
    """Whether a compiled configuration may run: inside shared memory, nothing in local memory."""
    return resources.shared <= shared_limit and resources.spills == 0 and resources.local == 0


def resident_warps(resources: Resources) -> int:
    """Warps of this kernel that one sm_121 multiprocessor holds; registers go by 256 a warp."""
    a_warp = -(-resources.registers * 32 // 256) * 256
    by_registers = SM121_REGISTERS // (a_warp * resources.config.warps)
    by_shared = SM121_SHARED_SM // (resources.shared + SM121_SHARED_RESERVED)
    by_warps = SM121_WARPS // resources.config.warps
    return min(by_registers, by_shared, by_warps) * resources.config.warps


def fewest_shares(blocks: int, resident: int, counts: range, busy: float) -> int:
    """Into how many shares to cut each block's work.

    Args:
        blocks: Blocks of work.
        resident: Programs that the card runs at once.
        counts: Shares to choose from, ascending, at least one.
        busy: Least part of the last round's programs that must have work.

    Returns:
        The fewest that keep the last round busy, else those that keep it busiest.
    """

    def last_round(count: int) -> float:
        rounds = blocks * count / resident
        return rounds / math.ceil(rounds)

    enough = (count for count in counts if last_round(count) >= busy)
    return next(enough, max(counts, key=last_round))


def select_sm121(table: Iterable[Resources], op: str, preference: Sequence[Config] = ()) -> Config:
    """Choose the sm_121 configuration of an operation from a table of compiled ones.

    Nobody has timed them on the card, so the choice is by what is known without one: it must fit;
    then enough warps must be resident to hide memory latency (8 are taken as enough: two for each
    of the four schedulers); then the most work a byte fetched (m*n/(m+n), to whole numbers: less
    is no difference); then more resident warps; then fewer registers.
    `preference` lists configurations to take first where they fit.

    Args:
        table: Compiled configurations of any operations.
        op: Operation to choose for.
        preference: Configurations to try in order before the rule above.

    Returns:
        The chosen configuration.

    Raises:
        ValueError: No configuration of `op` fits.
    """
    fitting = {row.config: row for row in table if row.op == op and fits(row)}
    if not fitting:
        raise ValueError(f"no compiled configuration of {op} fits sm_121: shrink its tiles")
    for config in preference:
        if config in fitting:
            return config

    def rank(row: Resources) -> tuple[bool, int, int, int, str]:
        reuse = round(row.config.m * row.config.n / (row.config.m + row.config.n))
        warps = resident_warps(row)
        return (warps >= 8, reuse, warps, -row.registers, row.config.key)

    return max(fitting.values(), key=rank).config


def to_json(table: Iterable[Resources]) -> str:
    """The table as it is committed: one row a line, sorted."""
    rows = sorted((asdict(row) for row in table), key=lambda row: (row["op"], str(row["config"])))
    body = ",\n".join("  " + json.dumps(row, sort_keys=True) for row in rows)
    return "[\n" + body + "\n]\n"


def from_json(text: str) -> tuple[Resources, ...]:
    """Read a table written by `to_json`."""
    rows = json.loads(text)
    return tuple(Resources(**(row | {"config": Config(**row["config"])})) for row in rows)


@cache
def sm121_table() -> tuple[Resources, ...]:
    """The committed table of what each configuration takes on sm_121a (rendered: never run)."""
    text = files("twinspark.kernels").joinpath("sm121_resources.json").read_text(encoding="utf-8")
    return from_json(text)
