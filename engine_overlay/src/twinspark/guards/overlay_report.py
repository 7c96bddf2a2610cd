"""The per-process reports of the overlay, as a guard reads them from outside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

if TYPE_CHECKING:
    from pathlib import Path

Role = Literal["api_server", "headless", "engine_core", "worker", "other"]


class _Wire(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class PatchState(_Wire):
    """One patch in one process."""

    id: str
    state: Literal["applied", "armed", "skipped", "failed"]
    reason: str | None = None

    @property
    def set_entry(self) -> tuple[str, str]:
        """What must be equal on all processes: armed waits for an import, so it counts as held."""
        return self.id, "held" if self.state in {"applied", "armed"} else self.state


class KernelChoice(_Wire):
    """Which kernel serves an operation, and why."""

    op: str
    kernel: str
    reason: str | None = None


class ConfigFile(_Wire):
    """The `--config` file that the process was started with."""

    path: str
    sha256: str


class ProcessReport(_Wire):
    """One process's own word about its patches (schema twinspark.overlay/1)."""

    schema_: Literal["twinspark.overlay/1"] = Field(alias="schema")
    pid: int
    role: Role
    rank: int | None = None
    time: float
    argv: list[str] = []
    config: ConfigFile | None = None
    patches: list[PatchState]
    kernels: list[KernelChoice] = []
    facts: dict[str, JsonValue] = {}
    counters: dict[str, int] = {}

    @property
    def patch_set(self) -> frozenset[tuple[str, str]]:
        """Ids with held, skipped or failed."""
        return frozenset(patch.set_entry for patch in self.patches)


@dataclass(frozen=True, slots=True)
class Reports:
    """All reports of a folder.

    Attributes:
        by_pid: Reports that could be read.
        unreadable: `file: why` of the others.
    """

    by_pid: dict[int, ProcessReport]
    unreadable: list[str]


def read_reports(folder: Path) -> Reports:
    """Read every `*.json` of a report folder; a missing folder holds no reports."""
    by_pid: dict[int, ProcessReport] = {}
    unreadable = []
    for path in sorted(folder.glob("*.json")):
        try:
            report = ProcessReport.model_validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            unreadable.append(f"{path.name}: {str(error).splitlines()[0]}")
            continue
        by_pid[report.pid] = report
    return Reports(by_pid, unreadable)
