from __future__ import annotations

import importlib.util

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from env.variants import ENV, edited
from render.golden import GOLDEN, REPOSITORY


@pytest.fixture(scope="module")
def twinspark_variant():
    path = REPOSITORY / "playbooks/filter_plugins/twinspark.py"
    spec = importlib.util.spec_from_file_location("twinspark_filters", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.FilterModule().filters()["twinspark_variant"]


@pytest.fixture
def hostvars():
    tree = yaml.safe_load((ENV / "inventory.yml").read_text())["sparks"]["children"]
    return {name: own for group in tree.values() for name, own in group["hosts"].items()}


NODES = ["spark1", "spark2"]


@pytest.mark.parametrize("host", NODES)
def test_filter__renders_what_the_golden_files_hold(twinspark_variant, hostvars, host):
    found = twinspark_variant(str(ENV / "flash-tp2.env"), hostvars, host, NODES)
    golden = GOLDEN / "inventory" / host / "flash-tp2"
    assert found["serve_yaml"] == (golden / "serve.yaml").read_text()
    assert found["engine_env"] == (golden / "engine.env").read_text()
    assert found["node_env"] == (golden / "node.env").read_text()


def test_filter__gives_roles_what_they_need(twinspark_variant, hostvars):
    found = twinspark_variant(str(ENV / "flash-tp2.env"), hostvars, "spark2", NODES)
    texts = {"serve_yaml", "engine_env", "node_env"}
    assert {key: value for key, value in found.items() if key not in texts} == {
        "name": "flash-tp2",
        "model": "/srv/models/deepseek-v4-flash-0731",
        "model_kind": "deepseek-v4-flash",
        "served_model_name": "deepseek-ai/DeepSeek-V4-Flash-0731",
        "port": 8000,
        "master_port": 29555,
        "master_address": "192.168.177.11",
        "cuda_home": "/usr/local/cuda-13.3",
        "ready_timeout_s": 2700,
    }


def test_filter__turns_all_refusals_into_one_line(twinspark_variant, hostvars, tmp_path):
    path = tmp_path / "x.env"
    path.write_text(edited("flash-tp2", BLOCK_SIZE="64", SPEC_TOKENS="4"))
    with pytest.raises(AnsibleFilterError) as caught:
        twinspark_variant(str(path), hostvars, "spark1", NODES)
    assert len(str(caught.value).splitlines()) == 1
    assert str(caught.value).count("x.env:") == 2


def test_filter__refuses_two_nodes_with_one_address(twinspark_variant, hostvars):
    hostvars["spark2"]["ansible_host"] = hostvars["spark1"]["ansible_host"]
    with pytest.raises(AnsibleFilterError, match="have the same ansible_host"):
        twinspark_variant(str(ENV / "flash-tp2.env"), hostvars, "spark1", NODES)


def test_filter__refuses_a_node_that_is_not_in_the_pair(twinspark_variant, hostvars):
    with pytest.raises(AnsibleFilterError, match="spark9 is not one of the nodes"):
        twinspark_variant(str(ENV / "flash-tp2.env"), hostvars, "spark9", NODES)
