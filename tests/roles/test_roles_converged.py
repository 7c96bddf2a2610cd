"""What every role promises, looked at on both nodes of the converged pair."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from env.locks import pins
from lab.engine import UNIT
from lab.play import ROOT
from roles.hosts import as_json, owned
from roles.role_table import load

if TYPE_CHECKING:
    from testinfra.host import Host

pytestmark = pytest.mark.lab

CURRENT = "/opt/twinspark/current"
ETC = f"{CURRENT}/etc/lab-cpu"
INVENTORY = load(ROOT / "env/lab.yml")["lab"]["children"]["sparks"]["children"]
RANK = {"spark1": 0, "spark2": 1}
FAKES = "PATH=/opt/twinspark-fakes:/usr/bin:/bin"


def rails(node: Host) -> list[dict[str, str]]:
    """The node's rails in the inventory."""
    name = node.backend.hostname
    group = "worker" if RANK[name] else "head"
    found: list[dict[str, str]] = INVENTORY[group]["hosts"][name]["twinspark_rails"]
    return found


def defaults(role: str) -> dict[str, Any]:
    """A role's defaults."""
    found: dict[str, Any] = load(ROOT / "roles" / role / "defaults/main.yml")
    return found


def release(node: Host) -> dict[str, str]:
    """The record that makes a release whole."""
    found: dict[str, str] = json.loads(owned(node, f"{CURRENT}/release.json", 0o644))
    return found


@pytest.mark.parametrize("name", ["serve.yaml", "engine.env", "node.env"])
def test_variant__is_the_golden_render_of_this_very_node(node: Host, name: str) -> None:
    golden = ROOT / "tests/render/golden/lab" / node.backend.hostname / "lab-cpu" / name
    on_node = node.file(f"{ETC}/{name}").content_string
    assert on_node.endswith(golden.read_text(encoding="utf-8"))
    assert "# twinspark:serve, variant lab-cpu\n" in on_node


def test_host_baseline__the_engine_s_user_cannot_log_in_and_owns_its_folders(node: Host) -> None:
    user = node.user("twinspark")
    assert (user.group, user.home, user.shell) == (
        "twinspark",
        "/var/lib/twinspark",
        "/usr/sbin/nologin",
    )
    assert user.uid < 1000
    assert "video" in user.groups
    for path in ("/var/lib/twinspark", "/var/cache/twinspark"):
        owned(node, path, 0o755, "twinspark")
    for path in ("/opt/twinspark", "/opt/twinspark/tools", "/etc/twinspark", "/srv/models"):
        owned(node, path, 0o755)


def test_host_baseline__packages_settings_and_the_release_s_own_wheel_are_there(node: Host) -> None:
    wanted = load(ROOT / "roles/host_baseline/vars/Debian.yml")["__host_baseline_packages"]
    listed = node.check_output("dpkg-query -W -f='${Package} ${db:Status-Status}\n'").splitlines()
    assert {f"{name} installed" for name in wanted} <= set(listed)
    assert "# twinspark:host_baseline" in owned(node, "/etc/sysctl.d/60-twinspark.conf", 0o644)
    wheel = node.file("/opt/twinspark/tools/twinspark.whl")
    assert (wheel.mode, wheel.sha256sum) == (0o644, release(node)["wheel_sha256"])
    assert "# twinspark:host_baseline" in owned(node, "/usr/local/bin/twinspark", 0o755)
    assert "12-block-zeroer" in node.check_output("twinspark overlay list")


def test_gpu_driver__the_installed_set_is_held_and_pinned(node: Host) -> None:
    patterns = " ".join(f"'{one}'" for one in defaults("gpu_driver")["gpu_driver_packages"])
    columns = "${Package}\\t${Version}\\t${db:Status-Want}\\t${db:Status-Status}\\n"
    listed = node.run(f"{FAKES} dpkg-query -W -f='{columns}' {patterns}").stdout.splitlines()
    installed = [line.split("\t") for line in listed if line.endswith("\tinstalled")]
    assert len(installed) == 6
    assert {want for _, _, want, _ in installed} == {"hold"}
    pins_file = owned(node, "/etc/apt/preferences.d/twinspark-freeze", 0o644)
    for name, version, _, _ in installed:
        assert f"Package: {name}\nPin: version {version}\nPin-Priority: 1001" in pins_file
    before = json.loads(owned(node, "/etc/twinspark/before-freeze.json", 0o644))
    assert set(before) == {"packages", "units"}


def test_gpu_driver__nothing_updates_by_itself(node: Host) -> None:
    for unit in defaults("gpu_driver")["gpu_driver_updaters"]:
        assert node.service(unit).is_masked, unit


def test_cuda_toolkit__none_was_asked_for_and_none_is_there(node: Host) -> None:
    home = defaults("cuda_toolkit")["cuda_toolkit_home"]
    for path in (home, "/opt/twinspark/cuda"):
        assert not node.file(path).exists, path
    assert "CUDA_HOME" not in node.file(f"{ETC}/engine.env").content_string


def test_clock_cap__is_locked_now_at_boot_and_was_seen_under_load(node: Host) -> None:
    cap = defaults("clock_cap")["clock_cap_maximum_mhz"]
    unit = owned(node, "/etc/systemd/system/twinspark-clock-cap.service", 0o644)
    assert f"nvidia-smi -lgc 300,{cap}\n" in unit
    service = node.service("twinspark-clock-cap.service")
    assert service.is_enabled
    assert service.is_running
    assert as_json(node, "cat /run/twinspark-fakes/clock.json") == {"lock": f"300,{cap}"}
    reading = as_json(node, "cat /run/twinspark-clock.json")
    assert reading["cap"] == cap
    assert 0 < max(reading["samples"]) <= cap


def test_fabric__each_rail_has_its_file_mtu_and_address(node: Host) -> None:
    for rail in rails(node):
        name = rail["interface"]
        text = owned(node, f"/etc/systemd/network/70-twinspark-{name}.network", 0o644)
        assert f"Address={rail['address']}\n" in text
        (link,) = as_json(node, f"ip -j addr show {name}")
        assert (link["mtu"], "LOWER_UP" in link["flags"]) == (9000, True)
        four = [one for one in link["addr_info"] if one["family"] == "inet"]
        assert [f"{one['local']}/{one['prefixlen']}" for one in four] == [rail["address"]]


def test_fabric__what_was_found_and_what_was_before_is_written_down(node: Host) -> None:
    names = [rail["interface"] for rail in rails(node)]
    found = json.loads(owned(node, "/etc/twinspark/fabric.json", 0o644))["rails"]
    assert [rail["interface"] for rail in found] == names
    assert all(rail["hca"] and rail["gid_index"] >= 0 for rail in found)
    before = json.loads(owned(node, "/etc/twinspark/before-fabric.json", 0o644))
    assert {link["ifname"]: link["mtu"] for link in before} == dict.fromkeys(names, 1500)


def test_checkpoint__is_verified_and_the_head_s(node: Host, spark1: Any) -> None:
    tool = "/opt/twinspark/bin/twinspark-checkpoint"
    assert "# twinspark:checkpoint" in owned(node, tool, 0o755)
    owned(node, "/srv/models/recall", 0o755)
    ask = f"{tool} verify --stamp-only --json /srv/models/recall"
    here, head = as_json(node, ask), json.loads(spark1.text(*ask.split()))
    assert here["tree_sha256"] == head["tree_sha256"]
    assert here["files"] == len(node.file("/srv/models/recall").listdir()) - 1  # the manifest
    assert not node.file("/run/twinspark-checkpoint.token").exists


def test_engine_venv__holds_exactly_the_locked_packages(node: Host) -> None:
    record = release(node)
    assert node.file(CURRENT).linked_to == f"/opt/twinspark/releases/{record['id']}"
    lock = node.file(f"{CURRENT}/engine.lock")
    assert lock.sha256sum == record["lock_sha256"]
    say = "import importlib.metadata as m; [print(d.name, d.version) for d in m.distributions()]"
    printed = node.check_output(f"{CURRENT}/venv/bin/python -P -c '{say}'").splitlines()
    have = {name.lower().replace("_", "-"): version for name, version in map(str.split, printed)}
    wanted = {name: version for name, (version, _) in pins("lab-cpu.lock").items()}
    # Debian's venv brings pip; the overlay comes after the lock
    assert have.keys() - wanted.keys() <= {"pip", "twinspark"}
    assert {name: have.get(name.replace(".", "-"), have.get(name)) for name in wanted} == wanted


def test_engine_venv__the_release_has_a_cache_of_its_own(node: Host) -> None:
    cache = f"/var/cache/twinspark/{release(node)['id']}"
    assert node.file(f"{CURRENT}/cache").linked_to == cache
    owned(node, cache, 0o755, "twinspark")
    caches = {path.rsplit("/", 1)[-1] for path in node.file("/var/cache/twinspark").listdir()}
    whole = node.check_output("echo /opt/twinspark/releases/*/release.json").split()
    kept = {path.split("/")[-2] for path in whole}
    assert caches == kept
    assert len(kept) <= defaults("engine_venv")["engine_venv_keep"]


def test_engine_overlay__is_the_sealed_wheel_and_vllm_s_plugin(node: Host) -> None:
    record = release(node)
    assert record["schema"] == "twinspark.release/1"
    wheel = node.file(f"{CURRENT}/{record['wheel']}")
    assert wheel.sha256sum == record["wheel_sha256"]
    assert record["lock"] == "lab-cpu.lock"
    points = node.check_output(
        f"cat {CURRENT}/venv/lib/python3*/site-packages/twinspark-*.dist-info/entry_points.txt"
    )
    assert "[vllm.general_plugins]\ntwinspark = twinspark.plugin:register" in points


def test_serve__the_unit_runs_what_is_rendered(node: Host) -> None:
    unit = owned(node, "/etc/systemd/system/vllm-deepseek-mxfp4@.service", 0o644)
    assert "# twinspark:serve" in unit
    service = node.service(UNIT)
    assert service.is_enabled
    assert service.is_running
    for name in ("serve.yaml", "engine.env", "node.env"):
        text = owned(node, f"{ETC}/{name}", 0o640, "root", "twinspark")
        runs = node.file(f"/run/twinspark/{name}")
        assert runs.sha256sum == hashlib.sha256(text.encode()).hexdigest(), name


def test_serve__the_engine_is_its_own_user_and_only_the_head_listens(node: Host) -> None:
    pid = node.check_output("systemctl show %s --property MainPID --value", UNIT)
    assert node.file(f"/proc/{pid}").user == "twinspark"
    status = node.file(f"/proc/{pid}/status").content_string
    assert "NoNewPrivs:\t1" in status
    assert "CapEff:\t0000000000000000" in status
    head = RANK[node.backend.hostname] == 0
    assert bool(node.check_output("ss -Hltn 'sport = :8000'")) is head


def test_smoke_guard__has_checked_this_node_s_release(node: Host) -> None:
    report = json.loads(owned(node, "/run/twinspark-guard.json", 0o644))
    (of_node,) = report["nodes"]
    assert (of_node["node"], of_node["rank"]) == (
        node.backend.hostname,
        RANK[node.backend.hostname],
    )
    assert of_node["equal"]["release"] == release(node)["id"]
    assert of_node["checks"]
    assert all(check["node"] == node.backend.hostname for check in of_node["checks"])


def test_battery_timer__is_off_unless_it_is_switched_on(node: Host) -> None:
    assert defaults("battery_timer")["battery_timer_enabled"] is False
    for name in ("twinspark-battery.timer", "twinspark-battery.service"):
        assert not node.file(f"/etc/systemd/system/{name}").exists
