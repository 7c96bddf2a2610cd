"""Another value for every role, and its effect: in check mode, and on spare nodes for real."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from lab.nodes import RAILS
from roles.alternatives import HOST, PLAYED
from roles.hosts import as_json

if TYPE_CHECKING:
    from pathlib import Path

    from testinfra.host import Host

    from roles.narrated import Narrated

pytestmark = pytest.mark.lab

BOTH = {"spark1", "spark2"}


def test_variant__another_value_reaches_the_files_of_both_nodes(other_check: Narrated) -> None:
    task = other_check.task("serve", "The variant's files are those that its env file gives")
    assert task.nodes == BOTH
    assert task.text.count("+max-num-seqs: 8") == 2


def test_host_baseline__another_kernel_setting(other_check: Narrated) -> None:
    task = other_check.task("host_baseline", "The kernel's settings are written")
    assert task.nodes == BOTH
    assert task.text.count("+vm.dirty_background_ratio = 5") == 2


def test_gpu_driver__one_more_updater_is_masked(other_check: Narrated) -> None:
    task = other_check.task("gpu_driver", "What updates by itself is masked")
    changed = [result for result in task.results if result[1] == "changed"]
    assert sorted(changed) == [("spark1", "changed"), ("spark2", "changed")]


def test_cuda_toolkit__a_toolkit_of_wheels_at_another_place(other_check: Narrated) -> None:
    assert other_check.task("cuda_toolkit", "Every locked wheel is installed").nodes == BOTH
    task = other_check.task("cuda_toolkit", "The toolkit is where the engine looks for it")
    assert task.nodes == BOTH
    assert "/usr/local/cuda-other" in task.text


def test_clock_cap__another_cap(other_check: Narrated) -> None:
    task = other_check.task("clock_cap", "The unit is installed")
    assert task.nodes == BOTH
    assert task.text.count("+ExecStart=/usr/bin/env nvidia-smi -lgc 300,2100") == 2


def test_fabric__another_mtu_on_each_of_the_four_links(other_check: Narrated) -> None:
    task = other_check.task("fabric", "Each rail has its file")
    assert task.nodes == BOTH
    assert task.text.count("+MTUBytes=8000") == 4


def test_checkpoint__its_tool_in_another_folder(other_check: Narrated) -> None:
    task = other_check.task("checkpoint", "The tool can be called")
    assert task.nodes == BOTH
    assert "/opt/twinspark-other/tools" in task.text


def test_engine_venv__another_lock_is_another_release(other_check: Narrated) -> None:
    made = other_check.task("engine_venv", "The release's folder is there")
    assert made.nodes == BOTH
    assert len(set(re.findall(r"/releases/([0-9a-f]{12})", made.text))) == 1
    assert other_check.task("engine_venv", "The lock lies in the release").nodes == BOTH
    assert other_check.task("engine_venv", "Every locked package is installed").nodes == BOTH


def test_engine_overlay__the_wheel_is_built_elsewhere_and_seals_the_release(
    other_check: Narrated, folder: Path
) -> None:
    assert [path.suffix for path in (folder / "dist").iterdir()] == [".whl"]
    seal = other_check.task("engine_overlay", "The release is sealed")
    assert seal.nodes == BOTH
    assert '+    "lock": "other.lock"' in seal.text


def test_serve__another_pause_before_a_restart(other_check: Narrated) -> None:
    task = other_check.task("serve", "The unit is installed")
    assert task.nodes == BOTH
    assert task.text.count("+RestartSec=7") == 2
    assert other_check.task("serve", "A pair of which one node is stale").nodes == BOTH


def test_smoke_guard__only_the_checks_asked_for_and_reports_elsewhere(other_guard: Path) -> None:
    report = json.loads((other_guard / "report.json").read_text(encoding="utf-8"))
    ran = {
        node["node"]: {check["name"].partition(".")[0] for check in node["checks"]}
        - {"fingerprint"}
        for node in report["nodes"]
    }
    assert PLAYED["smoke_guard"]["smoke_guard_checks"] == ["identity", "health"]
    assert ran == {"spark1": {"identity", "health"}, "spark2": {"identity"}}
    assert (other_guard / "report.html").exists()


def test_battery_timer__switched_on_it_counts_the_hours_asked_for(other_check: Narrated) -> None:
    task = other_check.task("battery_timer", "The battery's timer is installed")
    assert task.nodes == {"spark1"}  # one timer asks for the pair
    assert "+OnUnitInactiveSec=3600" in task.text


@pytest.mark.parametrize("name", sorted(BOTH))
def test_host_roles__other_values_hold_on_real_nodes(
    other_pair: dict[str, Host], name: str
) -> None:
    node = other_pair[name]
    text = node.file("/etc/sysctl.d/60-twinspark.conf").content_string
    assert "vm.dirty_background_ratio = 5\n" in text
    assert "vm.swappiness" not in text
    cap = HOST["clock_cap_maximum_mhz"]
    assert as_json(node, "cat /run/twinspark-fakes/clock.json") == {"lock": f"300,{cap}"}
    links = {link["ifname"]: link["mtu"] for link in as_json(node, "ip -j link show")}
    assert [links[rail] for rail in RAILS] == [HOST["fabric_mtu"]] * 2
