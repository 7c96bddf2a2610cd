from __future__ import annotations

import copy

import pytest

from env.variants import ENV
from twinspark.variant import HostError, Rail
from twinspark.variant.host import hosts
from twinspark.variant.inventory import read_inventory


def pair():
    return {
        f"spark{number}": {
            "ansible_host": f"192.0.2.{number}",
            "twinspark_rank": number - 1,
            "twinspark_rails": [
                {"interface": "rail1", "address": f"198.51.100.{number}/24", "hca": "roce1"},
                {"interface": "rail2", "address": f"203.0.113.{number}/24", "hca": "roce2"},
            ],
        }
        for number in (1, 2)
    }


def changed(host, path, value):
    """The pair with one value changed, or removed when the value is `...`."""
    nodes = copy.deepcopy(pair())
    *way, last = path
    target = nodes[host]
    for step in way:
        target = target[step]
    if value is ...:
        del target[last]
    else:
        target[last] = value
    return nodes


def test_hosts__know_rank_master_and_rails_in_the_order_of_ranks():
    worker_first = dict(reversed(pair().items()))
    found = hosts(worker_first, list(worker_first))
    assert list(found) == ["spark1", "spark2"]
    assert [host.is_head for host in found.values()] == [True, False]
    assert {host.master_address for host in found.values()} == {"198.51.100.1"}
    assert found["spark2"].rails[0] == Rail("rail1", "198.51.100.2/24", "roce1")
    assert found["spark2"].hcas == ("roce1", "roce2")
    assert found["spark2"].nnodes == 2


def test_hosts__name_no_hca_where_no_rail_has_one():
    nodes = changed("spark2", ("twinspark_rails", 1, "hca"), ...)
    del nodes["spark2"]["twinspark_rails"][0]["hca"]
    assert hosts(nodes, list(nodes))["spark2"].hcas == ()


@pytest.mark.parametrize(
    ("path", "value", "advice"),
    [
        (("twinspark_rank",), 0, "spark1 and spark2 have the same twinspark_rank, 0"),
        (("ansible_host",), "192.0.2.1", "spark1 and spark2 have the same ansible_host"),
        (("twinspark_rails", 0, "address"), "198.51.100.1/24", "have the same twinspark_rails[0]"),
        (("twinspark_rails", 1, "address"), "203.0.113.1/24", "have the same twinspark_rails[1]"),
        (("twinspark_rank",), 2, "must be 0 to 1"),
        (("twinspark_rank",), "1", "write 0 for the head and 1 for the worker"),
        (("twinspark_rank",), True, "write 0 for the head and 1 for the worker"),
        (("twinspark_rank",), ..., "write 0 for the head and 1 for the worker"),
        (("ansible_host",), ..., "not an address"),
        (("ansible_host",), "spark2.local", "not an address"),
        (("twinspark_rails",), ..., "twinspark_rails is missing"),
        (("twinspark_rails",), [], "twinspark_rails is missing"),
        (("twinspark_rails", 1), ..., "both need the same number"),
        (("twinspark_rails", 0, "address"), "198.51.100.2", "with its prefix length"),
        (("twinspark_rails", 0, "address"), "198.51.100.999/24", "not an address"),
        (("twinspark_rails", 0, "address"), "10.9.9.2/24", "not one subnet"),
        (("twinspark_rails", 1, "address"), "198.51.100.3/24", "a subnet of its own"),
        (("twinspark_rails", 0, "interface"), ..., "write the network interface's name"),
        (("twinspark_rails", 0, "interface"), "a b", "write the network interface's name"),
    ],
)
def test_hosts__refuse_what_is_not_a_pair_and_say_what_to_do(path, value, advice):
    nodes = changed("spark2", path, value)
    with pytest.raises(HostError) as caught:
        hosts(nodes, list(nodes))
    assert advice in str(caught.value)
    assert "spark2" in str(caught.value) or "twinspark_rank" in str(caught.value)


@pytest.mark.parametrize("name", ["inventory.yml", "lab.yml"])
def test_shipped_inventories__hold_a_pair(name):
    assert [host.rank for host in read_inventory(ENV / name).values()] == [0, 1]


def test_inventory__without_the_group_is_refused(tmp_path):
    (tmp_path / "i.yml").write_text("all: {hosts: {a: {}}}\n")
    with pytest.raises(HostError, match="group sparks has no hosts"):
        read_inventory(tmp_path / "i.yml")


def test_inventory__that_is_no_yaml_is_refused(tmp_path):
    (tmp_path / "i.yml").write_text("a: [1\n")
    with pytest.raises(HostError, match="cannot be read as YAML"):
        read_inventory(tmp_path / "i.yml")


def test_rail__with_a_misspelt_key_is_refused():
    found = pair()
    found["spark1"]["twinspark_rails"][0]["hcaa"] = "rocep1s0f0"
    with pytest.raises(HostError, match="hcaa: a rail has interface, address and hca"):
        hosts(found, list(found))


def test_rails__of_which_only_some_name_their_hca_are_refused():
    found = changed("spark1", ("twinspark_rails", 1, "hca"), ...)
    with pytest.raises(HostError, match="on every rail or on none"):
        hosts(found, list(found))
