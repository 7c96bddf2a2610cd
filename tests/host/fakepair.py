"""Two fake Sparks in this process: `record` asks the fakes' functions, files lie in a folder."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinspark.host import record

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

FAKES = Path(__file__).parents[1] / "fakes" / "bin"
if str(FAKES) not in sys.path:
    sys.path.insert(0, str(FAKES))

from _spark import programs  # noqa: E402
from _spark import state as store  # noqa: E402
from _spark.faults import FAULTS  # noqa: E402
from _spark.files import host_tree, tree  # noqa: E402

__all__ = ["FAULTS", "Pair", "expectations"]

GROUPS = ("driver", "units", "fabric", "fabric_ping", "log", "clock", "host", "toolchain", "engine")
PATTERNS = ["linux-*nvidia*", "nvidia-driver-*", "nvidia-modprobe"]


def expectations(rank: int) -> dict[str, Any]:
    """What the roles expect of a Spark."""
    names = (("enp1s0f0np0", 1, "rocep1s0f0"), ("enP2p1s0f0np0", 2, "roceP2p1s0f0"))
    rails = [
        {"interface": name, "address": f"10.77.{net}.1{rank + 1}/24", "hca": hca}
        for name, net, hca in names
    ]
    return {
        "driver": store.DRIVER,
        "kernels": [store.KERNEL, "7.0.0-1019-nvidia"],
        "kho_kernels": ["7.0.0-1019-nvidia"],
        "updaters": list(store.UPDATERS),
        "clock_unit": "twinspark-clock-cap.service",
        "clock_cap_mhz": 2200,
        "rails": rails,
        "peers": [f"10.77.{net}.1{2 - rank}/24" for _, net, _ in names],
        "link_gbps": 200,
        "rail_gbps_floor": 90,
        "swappiness": 1,
        "memory_free_gib": 100,
        "cuda": "13.3",
        "cuda_home": "/usr/local/cuda-13.3",
    }


@dataclass
class Pair:
    """Records both nodes, with faults on the first one (or on both)."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch

    def _state(self, rank: int, faults: Sequence[str]) -> None:
        """Point the fakes at one node's state, with its switches thrown and its files planted."""
        self.monkeypatch.setenv("TWINSPARK_FAKE_STATE", str(self.folder / str(rank)))
        store.write("switches.json", {"rank": rank, "faults": list(faults), "held": True})
        state = programs.current()
        for files in (host_tree(state), tree(state)):
            programs.plant(files, self.folder / str(rank) / "root", keep=True)

    def _answer(self, argv: list[str], environment: dict[str, str]) -> dict[str, Any]:
        """Stand in for `record.run_command`."""
        del environment
        answer = programs.PROGRAMS[argv[0]](programs.current(), argv[1:])
        assert answer is not None, f"no fake answers {argv}"
        return {"argv": argv, "rc": answer[0], "out": answer[1], "err": answer[2]}

    def one(self, rank: int, faults: Sequence[str] = ()) -> dict[str, Any]:
        """Record one node, a bandwidth run included."""
        self._state(rank, faults)
        self.monkeypatch.setattr(record, "run_command", self._answer)
        wish = expectations(rank)
        recorded = record.record(
            {
                "groups": GROUPS,
                "expect": wish,
                "units": [*wish["updaters"], wish["clock_unit"], "earlyoom.service"],
                "packages": PATTERNS,
                "file_roots": [str(self.folder / str(rank) / "root")],
                "path": os.environ["PATH"],
            }
        )
        for rail in wish["rails"]:
            name = rail["interface"]
            recorded["commands"][f"bandwidth:{name}"] = self._answer(
                ["ib_write_bw", "-d", name], {}
            )
        return recorded

    def both(
        self, faults: Sequence[str] = (), *, on_both: bool = False
    ) -> dict[str, dict[str, Any]]:
        """Record both nodes."""
        return {"spark1": self.one(0, faults), "spark2": self.one(1, faults if on_both else ())}
