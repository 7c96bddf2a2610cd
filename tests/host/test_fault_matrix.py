"""Which check catches which fault: each makes exactly its own check fail, none is silent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from host.fakepair import FAULTS, Pair, expectations
from twinspark.host.ansible import judged
from twinspark.host.checks import CHECKS, judge_recordings
from twinspark.host.symptoms import SYMPTOMS

GOLDEN = Path(__file__).parents[1] / "render" / "golden" / "inventory"  # the shipped renders
WISHES = {"spark1": expectations(0), "spark2": expectations(1)}


def _failed(pair: Pair, faults: list[str], *, on_both: bool = False) -> set[str]:
    verdicts = judge_recordings(pair.both(faults, on_both=on_both), WISHES)
    return {one.check for one in verdicts if one.state in {"wrong", "warning"}}


@pytest.fixture
def pair(tmp_path, monkeypatch):
    return Pair(tmp_path, monkeypatch)


def test_healthy_pair__every_check_is_asked_and_passes(pair):
    verdicts = judge_recordings(pair.both(), WISHES)
    not_ok = {
        (one.check, one.node, one.state, one.detail, one.actual)
        for one in verdicts
        if one.state != "ok"
    }
    # with an engine running, free memory is not judged
    assert {(check, state) for check, _, state, _, _ in not_ok} == {("memory_free", "unknown")}, (
        not_ok
    )
    assert {one.check for one in verdicts} == {check.id for check in CHECKS}


class Commands(dict):
    """A recording's commands that note which of them a check looks at."""

    def __init__(self, answers):
        super().__init__(answers)
        self.seen = set()

    def get(self, key, default=None):
        self.seen.add(key)
        return super().get(key, default)


def _with(recordings, **parts):
    """Exchange parts of spark1's recording."""
    return {**recordings, "spark1": {**recordings["spark1"], **parts}}


@pytest.mark.parametrize("status", [1, 124])
def test_failed_command__no_check_that_reads_it_is_ok(pair, status):
    recordings = pair.both()
    answers = recordings["spark1"]["commands"]
    read = set()
    for command, answer in answers.items():
        for check in CHECKS:
            failed = Commands({**answers, command: {**answer, "rc": status, "out": "", "err": ""}})
            first = judge_recordings(_with(recordings, commands=failed), WISHES, {check.id})[0]
            if command in failed.seen:
                read.add(command)
                assert first.state == "unknown", (command, first)
                assert f"{' '.join(answer['argv'])}` ended with {status}" in first.actual
    assert answers.keys() - read == {"product"}  # for a person to read


GARBLED = ("smi_version", "policy", "units", "addr", "route", "neigh", "mlxlink", "ping")
ODD_ADDRESSES = ('[{"mtu": "?"}]', '[{"addr_info": [{"family": "inet", "local": "?"}]}]')


@pytest.mark.parametrize(
    ("command", "text"),
    [
        *((command, text) for command in GARBLED for text in ("", "garbage\n", "{}")),
        *(("addr", text) for text in ODD_ADDRESSES),
        ("bios", ""),
    ],
)
def test_garbled_answer__is_no_good_news(pair, command, text):
    recordings = pair.both()
    answers = {
        name: {**answer, "out": text} if name.split(":")[0] == command else answer
        for name, answer in recordings["spark1"]["commands"].items()
    }
    verdicts = judge_recordings(_with(recordings, commands=answers), WISHES)
    assert {one.check for one in verdicts if one.state != "ok"} > {"memory_free"}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"rails": [1], "samples": 3}', '{"rails": '])
@pytest.mark.parametrize(
    ("path", "check"),
    [
        ("/etc/twinspark/fabric.json", "gid_stable"),
        ("/run/twinspark-clock.json", "clock_reached"),
        ("/opt/twinspark/cuda/13.3/probe.json", "toolkit_compiles"),
    ],
)
def test_torn_file__its_check_names_it_and_the_rest_goes_on(pair, path, check, text):
    recordings = pair.both()
    files = {**recordings["spark1"]["files"], path: text}
    verdicts = judge_recordings(_with(recordings, files=files), WISHES)
    assert {one.check for one in verdicts} == {one.id for one in CHECKS}
    found = next(one for one in verdicts if (one.check, one.node) == (check, "spark1"))
    assert found.state == "unknown"
    assert path in found.actual


def test_failed_ota_check__a_nought_in_its_words_is_no_good_news(pair):
    recordings = pair.both()
    answers = recordings["spark1"]["commands"]
    failed = {**answers["ota"], "rc": 2, "out": "", "err": "error 0: no record"}
    torn = _with(recordings, commands={**answers, "ota": failed})
    assert judge_recordings(torn, WISHES, {"ota_whole"})[0].state == "wrong"


def test_unanswered__is_told_and_is_no_success(pair):
    recordings = pair.both()
    refused = {"argv": ["dmesg"], "rc": 1, "out": "", "err": "dmesg: Operation not permitted"}
    answers = {**recordings["spark1"]["commands"], "dmesg": refused}
    texts = {name: json.dumps(one) for name, one in _with(recordings, commands=answers).items()}
    result = judged(texts, ("log",), (), ())
    said = "`dmesg` ended with 1: dmesg: Operation not permitted"
    assert [said in line for line in result["unanswered"]["spark1"]] == [True, True]
    assert result["warnings"] == result["unanswered"]
    assert f"spark1: pcie_errors: unknown: {said}" in result["table"]
    assert "2 unknown" in result["summary"]
    assert said in judged(texts, ("log",), ("pcie_errors",), ())["wrong"]["spark1"][0]


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if fault.check])
def test_fault__exactly_its_check_fails(pair, name):
    assert _failed(pair, [name]) == {FAULTS[name].check}


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if not fault.check])
def test_healthy_other_shape__nothing_fails(pair, name):
    assert _failed(pair, [name], on_both=True) == set()


def test_matrix__names_thirty_faults_and_their_rows():
    breaking = {name: fault for name, fault in FAULTS.items() if fault.check}
    assert len(breaking) >= 30
    assert {fault.row for fault in FAULTS.values()} <= SYMPTOMS.keys()


def test_matrix__every_check_has_a_fault_that_fails_it():
    # the two nodes' versions are compared only when neither is pinned: see the tests below
    caught = {fault.check for fault in FAULTS.values()}
    assert {check.id for check in CHECKS} - caught == {"driver_equal", "kernel_equal"}


@pytest.mark.parametrize("variant", sorted(path.name for path in (GOLDEN / "spark1").iterdir()))
def test_rendered_variant__carries_what_the_engine_checks_ask_for(pair, variant):
    recordings = pair.both()
    for name, recording in recordings.items():
        files = recording["files"]
        for path in [path for path in files if path.endswith(("engine.env", "node.env"))]:
            del files[path]
        for kind in ("engine.env", "node.env"):
            text = (GOLDEN / name / variant / kind).read_text(encoding="utf-8")
            files[f"/opt/twinspark/current/etc/{variant}/{kind}"] = text
    verdicts = judge_recordings(recordings, WISHES, only=("engine",))
    assert {one.check: one.actual for one in verdicts if one.state != "ok"} == {}


def test_two_cables__four_rails_in_two_cages_are_right_too(pair):
    recordings = pair.both(["two_cables"], on_both=True)
    wishes = {}
    for rank, name in enumerate(recordings):
        more = [
            {"interface": port, "address": f"10.77.{net}.1{rank + 1}/24"}
            for port, net in (("enp1s0f1np1", 3), ("enP2p1s0f1np1", 4))
        ]
        wish = WISHES[name]
        peers = [f"10.77.{net}.1{2 - rank}" for net in (1, 2, 3, 4)]
        wishes[name] = {**wish, "rails": [*wish["rails"], *more], "peers": peers}
    structure = ("rails_one_cage", "same_port", "subnets_distinct", "hca_mapped", "gid_present")
    only = (*structure, "rail_addresses", "link_carrier", "link_mtu", "reciprocal")
    verdicts = judge_recordings(recordings, wishes, only=only)
    assert {(one.check, one.state) for one in verdicts} == {(name, "ok") for name in only}


def test_driver_unpinned__nodes_are_compared(pair):
    wishes = {name: {**wish, "driver": ""} for name, wish in WISHES.items()}
    verdicts = judge_recordings(pair.both(["driver_drifted"]), wishes)
    assert {one.check for one in verdicts if one.state == "wrong"} == {"driver_equal"}


def test_kernel_unpinned__nodes_are_compared(pair):
    wishes = {name: {**wish, "kernels": []} for name, wish in WISHES.items()}
    verdicts = judge_recordings(pair.both(["kernel_other"]), wishes)
    assert {one.check for one in verdicts if one.state == "wrong"} == {"kernel_equal"}


def test_bandwidth__slot_power_and_a_weak_rail_get_different_advice(pair):
    rows = {}
    for fault in ("link_13g", "link_61g"):
        verdicts = judge_recordings(pair.both([fault]), WISHES)
        rows[fault] = next(one.row for one in verdicts if one.state == "wrong")
    assert rows == {"link_13g": 10, "link_61g": 11}
