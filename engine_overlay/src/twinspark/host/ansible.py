"""Verdicts in the form in which a playbook uses them."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from twinspark.host import parse
from twinspark.host.check import UNKNOWN, WARNING, WRONG, Verdict
from twinspark.host.checks import judge_recordings
from twinspark.host.checks_fabric import gid_index
from twinspark.host.expect import Expect
from twinspark.host.node import Node, RecordingError
from twinspark.host.report import explain, summary, table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def _required(verdict: Verdict, must: Sequence[str]) -> Verdict:
    """Return a verdict as wrong when it had to give an answer and gave none."""
    if verdict.state != UNKNOWN or verdict.check not in must:
        return verdict
    said = verdict.actual or verdict.detail
    return dataclasses.replace(verdict, state=WRONG, expected="an answer", actual=said, detail="")


def _recording(name: str, text: str) -> dict[str, Any]:
    """Return what a node recorded.

    Raises:
        RecordingError: It is no JSON object.
    """
    try:
        value = json.loads(text)
    except ValueError as error:
        raise RecordingError(f"{name}: no recording: {error}") from error
    if not isinstance(value, dict):
        raise RecordingError(f"{name}: no recording: {text[:80]!r}")
    return value


def judged(
    recordings: Mapping[str, str], only: Sequence[str], must: Sequence[str], pending: Sequence[str]
) -> dict[str, Any]:
    """Judge recordings as Ansible has them, each with the expectation that was sent along.

    A line about a pair is under each of its nodes. `unanswered`: the node was asked in vain, and
    may or may not be well; these lines are among the `warnings` too.

    Raises:
        RecordingError: A recording is none.
        ValueError: A name is unknown.
    """
    read = {name: _recording(name, text) for name, text in recordings.items()}
    wishes = {name: value.get("expect", {}) for name, value in read.items()}
    verdicts = tuple(_required(one, must) for one in judge_recordings(read, wishes, only, pending))

    def lines(chosen: Callable[[Verdict], bool]) -> dict[str, list[str]]:
        return {
            name: [explain(one) for one in verdicts if chosen(one) and name in one.node.split("+")]
            for name in read
        }

    return {
        "wrong": lines(lambda one: one.state == WRONG),
        "warnings": lines(lambda one: one.state == WARNING or one.unanswered),
        "unanswered": lines(lambda one: one.unanswered),
        "summary": summary(verdicts),
        "table": table(verdicts),
        "verdicts": [one.as_json() for one in verdicts],
    }


def rails_found(recording: str) -> list[dict[str, Any]]:
    """Return each expected rail with its HCA, RoCEv2 GID index and cage port.

    An index is found by the rail's address, never fixed: two HCAs' tables disagree about it.
    """
    read = json.loads(recording)
    node = Node.from_json(str(read.get("host")), read, Expect.from_json(read.get("expect", {})))
    return [
        {
            "interface": rail.interface,
            "hca": node.hca_map.get(rail.interface),
            "gid_index": gid_index(node, rail),
            "port": node.files.get(f"/sys/class/net/{rail.interface}/phys_port_name", "").strip(),
        }
        for rail in node.expect.rails
    ]


def bandwidth(results: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return a loop's ib_write_bw results as a recording's answers, by rail."""
    return {
        f"bandwidth:{one['item']['interface']}": {
            "argv": list(one.get("cmd", [])),
            "rc": int(one.get("rc", 126)),
            "out": str(one.get("stdout", "")),
            "err": str(one.get("stderr", one.get("msg", ""))),
        }
        for one in results
        if not one.get("skipped")
    }


def rails_restored(before: str, now: str) -> list[list[str]]:
    """Return the commands that give rails back their earlier addresses, MTUs and state.

    Args:
        before: The rails' rows of `ip -j addr` before the first change.
        now: `ip -j addr` of now.
    """
    was, has = parse.links(before), parse.links(now)
    commands: list[list[str]] = []
    for name, link in was.items():
        if name not in has:
            continue
        commands += [
            ["ip", "addr", "del", address, "dev", name]
            for address in has[name].addresses
            if address not in link.addresses
        ]
        commands += [
            ["ip", "addr", "add", address, "dev", name]
            for address in link.addresses
            if address not in has[name].addresses
        ]
        if has[name].mtu != link.mtu:
            commands.append(["ip", "link", "set", "dev", name, "mtu", str(link.mtu)])
        if has[name].up and not link.up:
            commands.append(["ip", "link", "set", "dev", name, "down"])
    return commands
