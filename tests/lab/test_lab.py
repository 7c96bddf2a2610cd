"""The lab behaves like two machines: a bare one of its own, beside the converged one."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from lab.nodes import BOOT_ID, NAMES, SCRIPT, Lab

pytestmark = pytest.mark.lab

REPOSITORY = Path(__file__).parents[2]


def bare(name: str) -> Lab:
    """A lab without a way out, so that it does not meet the converged one's addresses."""
    return Lab(
        {
            "TWINSPARK_LAB_NAME": name,
            "TWINSPARK_LAB_STATE": f"/var/tmp/twinspark-{name}",  # noqa: S108 - the lab's own place
            "TWINSPARK_LAB_NET": "none",
            "TWINSPARK_LAB_RAIL_ADDRESSES": "1",
            "TWINSPARK_LAB_BINDS": f"{REPOSITORY / 'env'}:/srv/env",
        }
    )


@pytest.fixture(scope="module")
def pair():
    lab = bare("pair")
    lab("down")
    lab("up")
    yield lab
    lab("down")


@pytest.fixture
def fresh():
    """A lab that is down, and is again after the test."""
    lab = bare("fresh")
    lab("down")
    yield lab
    lab("down")


def until(what, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, f"{what} did not come true within {seconds} s"
        time.sleep(0.1)


@pytest.mark.parametrize("name", NAMES)
def test_node__boots_without_a_failed_unit(pair, name):
    state = pair.node(name).run("systemctl", "is-system-running", "--wait", check=False)
    failed = pair.node(name).text("systemctl", "--failed", "--no-legend")
    assert (state.stdout.strip(), failed) == ("running", "")


def test_node__sees_its_own_interfaces_and_not_the_hosts(pair):
    seen = set(pair.node("spark1").text("ls", "/sys/class/net").split())
    assert seen == {"lo", "enP7s7", "enp1s0f0np0", "enP2p1s0f0np0"}


@pytest.mark.parametrize("rail", [1, 2])
def test_rails__carry_jumbo_frames(pair, rail):
    ping = ["ping", "-c", "1", "-W", "2", "-M", "do", "-s", "8972"]
    pair.node("spark1").run(*ping, f"10.77.{rail}.12")


def test_net_none__has_no_way_out(pair):
    assert "default" not in pair.node("spark1").text("ip", "route")


def test_binds__are_shown_read_only(pair):
    spark1 = pair.node("spark1")
    assert "lab.yml" in spark1.text("ls", "/srv/env")
    assert spark1.run("touch", "/srv/env/new", check=False).returncode != 0


def test_ssh__goes_in_as_the_user_with_sudo(pair):
    assert pair("ssh", "spark2", "sudo", "id", "-un").stdout.strip() == "root"


def test_exec__does_not_stay_stopped_with_what_a_shutdown_stops(pair):
    spark1 = pair.node("spark1")
    assert spark1.run("sh", "-c", "kill -STOP $$; echo woken", limit_s=60).stdout == "woken\n"


def test_reboot__keeps_the_disk_and_forgets_the_network_state(pair):
    spark2 = pair.node("spark2")
    before = spark2.run(*BOOT_ID).stdout
    spark2.run("touch", "/var/lib/stays")
    spark2.run("ip", "address", "add", "192.168.9.9/24", "dev", "enp1s0f0np0")
    spark2.run("systemctl", "reboot")
    # its shutdown may end a command that asks
    until(
        lambda: (now := spark2.run(*BOOT_ID, check=False)).returncode == 0 and now.stdout != before
    )
    pair("wait", "spark2")
    spark2.run("test", "-e", "/var/lib/stays")
    assert "192.168.9.9" not in spark2.text("ip", "address")


def test_kill__is_a_power_cut_and_boot_brings_it_back(pair):
    spark1 = pair.node("spark1")
    before = spark1.run(*BOOT_ID).stdout
    pair("kill", "spark1")
    assert pair("exec", "spark1", "true", check=False).returncode == 1
    assert "spark1  10.77.0.11  off" in pair("status").stdout
    pair("boot", "spark1")
    pair("wait", "spark1")
    assert spark1.run(*BOOT_ID).stdout != before


def test_off__is_an_orderly_shutdown(pair):
    pair("off", "spark2")
    pair("up")  # again: boots what is off
    journal = pair.node("spark2").text("journalctl", "--boot=-1", "--no-pager", "--output=cat")
    assert "Reached target poweroff.target" in journal


def test_cut__takes_the_carrier_of_one_rail_even_over_a_reboot(pair):
    spark1, spark2 = pair.node("spark1"), pair.node("spark2")
    pair("cut", "1")
    until(lambda: not spark1.carries(1) and not spark2.carries(1), 5)
    assert spark1.carries(2)
    pair("kill", "spark1")
    pair("boot", "spark1")
    pair("wait", "spark1")
    assert (spark1.carries(1), spark1.carries(2)) == (False, True)
    pair("join", "all")
    until(lambda: spark1.carries(1) and spark2.carries(1), 5)


def test_cut__at_one_end_is_seen_at_that_end(pair):
    pair("cut", "2", "spark2")
    until(lambda: not pair.node("spark2").carries(2), 5)
    assert pair.node("spark1").carries(2)
    pair("join", "2", "spark2")
    until(lambda: pair.node("spark2").carries(2), 5)


def test_command__beside_a_running_one_is_refused_in_one_line(pair):
    lock = Path("/run/lock/twinspark-pair.lock")
    with subprocess.Popen(["flock", lock, "sh", "-c", f"echo up, pid 1 >{lock}; read x"],
                          stdin=subprocess.PIPE) as holder:  # fmt: skip
        until(lambda: lock.exists() and lock.read_text(), 5)
        refused = pair("down", check=False)
        holder.communicate(b"\n", timeout=5)
    lock.unlink()
    assert refused.returncode == 1
    assert refused.stderr == "lab: another lab command is at work: up, pid 1\n"
    assert "running" in pair("status").stdout


def test_down__leaves_nothing(fresh):
    before = fresh("trace").stdout
    fresh("up")
    assert fresh("trace").stdout != before
    stays = subprocess.Popen([SCRIPT, "ctl", "sleep", "600"], env={**os.environ, **fresh.settings})
    until(lambda: "sleep" in Path(f"/proc/{stays.pid}/cmdline").read_text(), 5)
    fresh("down")
    assert stays.wait(timeout=5) == -signal.SIGTERM
    assert fresh("trace").stdout == before


@pytest.mark.parametrize("blow", [signal.SIGTERM, signal.SIGKILL])
def test_up__that_was_ended_midway_can_be_run_again(fresh, blow):
    before = fresh("trace").stdout
    with subprocess.Popen([SCRIPT, "up"], env={**os.environ, **fresh.settings},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as first:  # fmt: skip
        until(lambda: Path("/run/netns/twinspark-fresh-spark1").exists())
        first.send_signal(blow)
        first.wait(timeout=60)
    assert first.returncode != 0
    if blow == signal.SIGTERM:  # it cleans up after itself
        assert fresh("trace").stdout == before
    fresh("up")
    fresh.node("spark2").run("true")


@pytest.mark.parametrize("program", [[SCRIPT, "up"], [REPOSITORY / "run", "up"]])
def test_up__says_in_one_line_that_it_needs_root(program):
    refused = subprocess.run(
        ["unshare", "--user", *program], capture_output=True, text=True, check=False
    )
    assert refused.returncode != 0
    assert refused.stdout == ""
    assert refused.stderr.count("\n") == 1
    assert "needs root" in refused.stderr


def test_check__says_in_one_line_what_is_missing(tmp_path):
    (tmp_path / "bin").mkdir()
    for folder in ("/usr/bin", "/usr/sbin"):
        for program in Path(folder).iterdir():
            link = tmp_path / "bin" / program.name
            if program.name not in {"mmdebstrap", "nft"} and not link.exists():
                link.symlink_to(program)
    refused = subprocess.run(
        [SCRIPT, "check"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": str(tmp_path / "bin")},
    )
    assert refused.returncode == 1
    assert refused.stderr == "lab: missing Debian packages: mmdebstrap nftables \n"
