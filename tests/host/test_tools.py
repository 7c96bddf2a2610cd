"""Recorder and fakes as programs, the clock, the toolkit's output, restoring rails."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from host.fakepair import FAKES, expectations
from twinspark.guards.registry import GUARDS
from twinspark.host import clock, record, toolkit
from twinspark.host.__main__ import main
from twinspark.host.ansible import bandwidth, judged, rails_found, rails_restored
from twinspark.host.document import render
from twinspark.host.symptoms import SYMPTOMS

ROOT = Path(__file__).parents[2]


def _environment(tmp_path, rank=0):
    """PATH with all fakes before the system's programs, and a node's own state."""
    (tmp_path / "switches.json").write_text(json.dumps({"rank": rank}))
    path = f"{FAKES.parent / 'host'}:{FAKES}:/usr/bin:/bin"
    return {**os.environ, "PATH": path, "TWINSPARK_FAKE_STATE": str(tmp_path)}


def _fake(environment, *argv):
    return subprocess.run(argv, env=environment, check=False, capture_output=True, text=True)


def _record(environment, tmp_path, **wish):
    """Run the recorder as Ansible does: its text on a bare interpreter's standard input."""
    asked = {"path": environment["PATH"], "file_roots": [str(tmp_path / "root")], **wish}
    return subprocess.run(
        ["/usr/bin/env", "python3", "-S", "-", json.dumps(asked)],
        input=Path(record.__file__).read_text(encoding="utf-8"),
        env=environment, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip


def test_recorder__alone_on_standard_input__finds_what_the_fakes_show(tmp_path):
    environment = _environment(tmp_path)
    text = _record(environment, tmp_path, groups=["driver", "fabric"], expect=expectations(0))
    assert rails_found(text) == [
        {"interface": "enp1s0f0np0", "hca": "rocep1s0f0", "gid_index": 3, "port": "p0"},
        {"interface": "enP2p1s0f0np0", "hca": "roceP2p1s0f0", "gid_index": 3, "port": "p0"},
    ]


def test_recorder__a_program_is_absent__is_no_error_and_a_required_check_is_wrong(tmp_path):
    environment = {**os.environ, "PATH": str(tmp_path)}
    asked = {"path": str(tmp_path), "groups": ["driver"], "file_roots": [str(tmp_path)]}
    text = subprocess.run(
        [sys.executable, record.__file__, json.dumps(asked)],
        env=environment, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert judged({"spark1": text}, ("driver_answers",), (), ())["wrong"] == {"spark1": []}
    wrong = judged({"spark1": text}, ("driver_answers",), ("driver_answers",), ())["wrong"]
    assert "nvidia-smi: not found" in wrong["spark1"][0]


def test_recorder__keeps_no_secret(tmp_path):
    for name, text in {
        "opt/twinspark/current/etc/v/engine.env": "VLLM_API_KEY=hush\nNCCL_NVLS_ENABLE=0\n",
        "etc/netplan/50-wifi.yaml": "    wlP9s9:\n      access-points:\n        home: "
        "{password: hush}\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    files = record.read_files({"engine", "fabric"}, [str(tmp_path)])
    assert "hush" not in json.dumps(files)
    assert files["/opt/twinspark/current/etc/v/engine.env"] == "NCCL_NVLS_ENABLE=0"


def test_clock__under_a_fake_load__the_lock_is_seen(tmp_path, monkeypatch):
    environment = _environment(tmp_path)
    assert _fake(environment, "nvidia-smi", "-lgc", "300,2200").returncode == 0
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    written = tmp_path / "reading.json"
    burn = ["twinspark-fake", "burn", "20"]
    command = ["clock", "--cap", "2200", "--warm", "0.5", "--seconds", "1", "--write", str(written)]
    assert main([*command, "--burn", *burn]) == 0
    assert clock.Reading.from_json(written.read_text()).highest == 2200


def test_clock__no_load__could_not_run(tmp_path, capsys):
    asked = argparse.Namespace(
        cap=2200, burn=["/bin/false"], warm=0.2, seconds=0.3, write=tmp_path / "reading.json"
    )
    assert clock.run(asked) == 2
    assert "ended with 1" in capsys.readouterr().out


SMI = b"#!/bin/sh\necho 2200 MHz\n"
LOAD = "exec sleep 9"


def _clock(tmp_path, monkeypatch, burn, *words, smi=SMI, mode=0o755):
    """Read the clock of a fake nvidia-smi while a shell script burns."""
    (tmp_path / "nvidia-smi").write_bytes(smi)
    (tmp_path / "nvidia-smi").chmod(mode)
    (tmp_path / "burn").write_text(burn)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    command = ["clock", "--cap", "2200", "--warm", "0.2", "--seconds", "0.4"]
    command += ["--write", str(tmp_path / "r.json"), "--burn", "sh", str(tmp_path / "burn")]
    return main([*command, *words])


@pytest.mark.parametrize(
    ("burn", "said"),
    [
        ("exit 0", "sh ended with 0 before the reading was over: no word"),
        ("echo no GPU >&2; exit 3", "sh ended with 3 before the reading was over: no GPU"),
    ],
)
def test_clock__load_ends_too_early__could_not_run(tmp_path, monkeypatch, capsys, burn, said):
    assert _clock(tmp_path, monkeypatch, burn) == 2
    assert capsys.readouterr().out == said + "\n"
    assert not (tmp_path / "r.json").exists()


def test_clock__load_that_talks__is_not_held_up(tmp_path, monkeypatch):
    talk = "head -c 300000 /dev/zero"
    assert _clock(tmp_path, monkeypatch, f"{talk}; {talk} >&2; touch {tmp_path}/past; {LOAD}") == 0
    assert (tmp_path / "past").exists()


@pytest.mark.parametrize(
    ("smi", "mode"),
    [
        (b"#!/bin/sh\nprintf '\\377\\376'\n", 0o755),
        (b"#!/bin/sh\nexec sleep 9\n", 0o755),
        (SMI, 0o644),
    ],
)
def test_clock__nvidia_smi_without_a_clock__could_not_run(tmp_path, monkeypatch, capsys, smi, mode):
    monkeypatch.setattr(record, "SECONDS", 0.3)
    assert _clock(tmp_path, monkeypatch, LOAD, smi=smi, mode=mode) == 2
    assert capsys.readouterr().out == "nvidia-smi said no clock\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--write", "/nowhere/r.json"], "/nowhere/"),
        (["--burn", "/nowhere/burn"], "/nowhere/burn"),
        (["--warm", "-1"], "argument --warm: invalid amount value: '-1'"),
    ],
)
def test_clock__bad_arguments__are_one_line(tmp_path, monkeypatch, capsys, words, said):
    try:
        status = _clock(tmp_path, monkeypatch, LOAD, *words)
    except SystemExit as stopped:  # argparse's way
        status = stopped.code
    assert status == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_fake__not_about_a_spark__asks_the_real_program(tmp_path):
    assert _fake(_environment(tmp_path), "uname", "-s").stdout.strip() == "Linux"


def test_fake__power_limit__is_refused_as_on_gb10(tmp_path):
    assert _fake(_environment(tmp_path), "nvidia-smi", "-pl", "100").returncode == 3


@pytest.mark.parametrize(
    ("listing", "expected"),
    [
        ("ELF file    1: burn.1.sm_121a.cubin\n", {"sass": True, "ptx": 0}),
        ("ELF file    1: burn.1.sm_120.cubin\n", {"sass": False, "ptx": 0}),
        (
            "ELF file    1: b.1.sm_121a.cubin\nPTX file    1: b.1.sm_121a.ptx\n",
            {"sass": True, "ptx": 1},
        ),
    ],
)
def test_toolkit__listing__tells_machine_code_from_ptx(listing, expected):
    assert toolkit.inspect(listing, "sm_121a") == {"target": "sm_121a", **expected}


@pytest.mark.parametrize("torn", ["", "[]", '{"mark": '])
def test_toolkit__torn_note__compiles_again(tmp_path, monkeypatch, torn):
    for name in ("nvcc", "ptxas", "cuobjdump"):
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).write_text("#!/bin/sh\n")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "burn.cu").write_text("")
    (tmp_path / "probe.json").write_text(torn)
    monkeypatch.setattr(toolkit, "links", lambda *_: True)
    assert main(["toolkit", "--home", str(tmp_path), "--source", str(tmp_path / "burn.cu")]) == 1
    assert json.loads((tmp_path / "probe.json").read_text())["links"] is True


def test_toolkit__absent__could_not_run(tmp_path):
    places = ["--home", str(tmp_path / "no"), "--source", str(tmp_path / "no.cu")]
    assert main(["toolkit", *places]) == 2


def test_judge__recordings_from_files__wrong_is_1_and_unreadable_is_2(tmp_path, capsys):
    environment = _environment(tmp_path)
    (tmp_path / "switches.json").write_text('{"rank": 0, "faults": ["ota_torn"]}')
    text = _record(environment, tmp_path, groups=["driver"], expect={}, packages=["nvidia-*"])
    (tmp_path / "one.json").write_text(text)
    assert main(["judge", f"spark1={tmp_path}/one.json", "--only", "driver"]) == 1
    assert "S04" in capsys.readouterr().out
    (tmp_path / "two.json").write_text("no recording")
    assert main(["judge", f"spark1={tmp_path}/two.json"]) == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no JSON", "spark1: no recording: "),
        ("[]", "spark1: no recording: '[]'"),
        ('{"schema": "twinspark.host/1"}', "spark1: no recording of schema"),
        (None, "'foo' is not NODE=FILE"),
    ],
)
def test_judge__no_recording__is_one_line(tmp_path, capsys, text, said):
    (tmp_path / "one.json").write_text(text or "")
    assert main(["judge", f"spark1={tmp_path}/one.json" if text else "foo"]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"twinspark.host judge: {said}")
    assert told.count("\n") == 1


def test_judge__a_program_gave_no_answer__is_no_success(tmp_path, capsys):
    answer = {"argv": ["dmesg"], "rc": 1, "out": "", "err": "dmesg: Operation not permitted"}
    recording = {"schema": record.SCHEMA, "commands": {"dmesg": answer}, "files": {}}
    (tmp_path / "one.json").write_text(json.dumps(recording))
    assert main(["judge", f"spark1={tmp_path}/one.json", "--only", "log"]) == 2
    assert "unknown: `dmesg` ended with 1: dmesg: Operation not" in capsys.readouterr().out


def test_bandwidth__a_loop_s_results__become_answers_by_rail():
    results = [
        {"item": {"interface": "a"}, "rc": 0, "stdout": "x", "cmd": ["ib_write_bw"]},
        {"item": {"interface": "b"}, "skipped": True},
    ]
    assert bandwidth(results) == {
        "bandwidth:a": {"argv": ["ib_write_bw"], "rc": 0, "out": "x", "err": ""}
    }


def test_rails_restored__gives_back_addresses_and_mtu_and_no_more():
    def row(mtu, *addresses, flags=()):
        info = [{"family": "inet", "local": one, "prefixlen": 24} for one in addresses]
        return {"ifname": "r1", "mtu": mtu, "addr_info": info, "flags": flags}

    before = json.dumps([row(1500, "192.168.9.1")])
    now = json.dumps([row(9000, "10.77.1.11", flags=("UP",)), {"ifname": "other", "mtu": 1}])
    assert rails_restored(before, now) == [
        ["ip", "addr", "del", "10.77.1.11/24", "dev", "r1"],
        ["ip", "addr", "add", "192.168.9.1/24", "dev", "r1"],
        ["ip", "link", "set", "dev", "r1", "mtu", "1500"],
        ["ip", "link", "set", "dev", "r1", "down"],
    ]
    assert rails_restored(before, before) == []


def test_symptoms__the_document_is_what_the_table_says():
    document = ROOT / "docs" / "symptoms.md"
    again = ".venv/bin/python -m twinspark.host symptoms --write docs/symptoms.md"
    assert document.read_text(encoding="utf-8") == render(), f"run: {again}"


def test_symptoms__cannot_be_written__is_one_line(capsys):
    assert main(["symptoms", "--write", "/nowhere/symptoms.md"]) == 2
    assert re.fullmatch(r"twinspark.host symptoms: .*/nowhere/.*\n", capsys.readouterr().err)


def test_symptoms__every_row_is_looked_for_by_somebody():
    assert "nobody yet" not in render()


def test_symptoms__every_guard_that_a_row_names_exists():
    said = " ".join(row.elsewhere for row in SYMPTOMS.values())
    named = {name for pair in re.findall(r"\bguards? (\w+)(?: and (\w+))?", said) for name in pair}
    assert {"first_token", "recall"} <= named
    assert named - {guard.name for guard in GUARDS} - {""} == set()
