"""The rails' files, and what the role may never do to a running fabric."""

from __future__ import annotations

import re

import yaml

from host.render import ROOT, lines, render

VALUES = {"rail": {"interface": "enp1s0f0np0", "address": "10.77.1.11/24"}, "fabric_mtu": 9000}
TASKS = sorted((ROOT / "roles" / "fabric" / "tasks").glob("*.yml"))


def test_networkd__gives_address_and_mtu_and_takes_nothing_from_a_router():
    found = lines(render("etc/systemd/network/70-twinspark-rail.network.j2", **VALUES))
    assert {"Name=enp1s0f0np0", "MTUBytes=9000", "Address=10.77.1.11/24"} <= found
    assert {"IPv6AcceptRA=no", "DHCP=no"} <= found


def test_netplan__says_the_same_and_nothing_of_routes():
    text = render("etc/netplan/70-twinspark-rail.yaml.j2", **VALUES)
    link = yaml.safe_load(text)["network"]["ethernets"]["enp1s0f0np0"]
    assert (link["mtu"], link["addresses"]) == (9000, ["10.77.1.11/24"])
    assert link["renderer"] == "NetworkManager"
    assert not {"gateway4", "routes", "nameservers"} & set(link)


def test_role__never_applies_netplan_to_all_links():
    commands = "\n".join(path.read_text(encoding="utf-8") for path in TASKS)
    assert not re.search(
        r"netplan\W+(--\w+\W+)?(apply|try)\b", re.sub(r"#.*|`[^`]*`", "", commands)
    )


def test_role__asks_for_a_running_engine_before_it_touches_a_link():
    text = (ROOT / "roles/fabric/tasks/apply.yml").read_text(encoding="utf-8")
    assert text.index("No link is changed under a running engine") < text.index("apply_{{")
