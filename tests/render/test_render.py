from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from env.variants import ENV, edited
from twinspark.variant import Rail, load, loads, render
from twinspark.variant.dotenv import parse
from twinspark.variant.environment import Layout
from twinspark.variant.inventory import read_inventory

HEAD, WORKER = read_inventory(ENV / "inventory.yml").values()


def env(text):
    return {item.key: item.value for item in parse(text, "rendered")}


def rendered(host=HEAD, name="flash-tp2", **changes):
    return render(loads(edited(name, **changes), f"{name}.env"), host)


def test_switch_that_is_off__becomes_a_no_flag_and_never_a_false():
    flags = yaml.safe_load(rendered(ENABLE_PREFIX_CACHING="false").serve_yaml)
    assert flags["no-enable-prefix-caching"] is True
    assert "enable-prefix-caching" not in flags
    assert not [flag for flag, value in flags.items() if value is False]


def test_no_speculation__renders_no_speculative_config():
    flags = yaml.safe_load(rendered(name="flash-tp2-nospec").serve_yaml)
    assert "speculative-config" not in flags
    assert flags["max-cudagraph-capture-size"] == 6


def test_no_tool_parser__switches_automatic_tool_choice_off():
    flags = yaml.safe_load(rendered(TOOL_CALL_PARSER="none").serve_yaml)
    assert flags["no-enable-auto-tool-choice"] is True
    assert "tool-call-parser" not in flags


@pytest.mark.parametrize(
    "name", ["true", "off", "1e3", "0x10", "null", "2026-11-30", "a:b", "1:30"]
)
def test_names_that_yaml_reads_otherwise__stay_text(name):
    flags = yaml.safe_load(rendered(SERVED_MODEL_NAME=name).serve_yaml)
    assert flags["served-model-name"] == name


def test_engine_env__is_equal_on_both_nodes_and_node_env_is_not():
    variant = load(ENV / "flash-tp2.env")
    head, worker = render(variant, HEAD), render(variant, WORKER)
    assert head.engine_env == worker.engine_env
    assert env(head.node_env)["VLLM_HOST_IP"] == HEAD.rails[0].ip
    assert env(worker.node_env)["VLLM_HOST_IP"] == WORKER.rails[0].ip
    assert env(worker.node_env)["TWINSPARK_RANK"] == "1"


def test_engine_env__leaves_vllm_plugins_unset():
    for path in sorted(ENV.glob("*.env")):
        assert "VLLM_PLUGINS" not in env(render(load(path), HEAD).engine_env)


def test_node_env__names_devices_exactly_and_a_gid_only_where_given():
    found = env(rendered().node_env)
    assert found["NCCL_IB_HCA"] == "=rocep1s0f0,roceP2p1s0f0"
    assert "NCCL_IB_GID_INDEX" not in found
    single = replace(HEAD, rails=(Rail("eth9", "198.51.100.1/24"),), gid_index=3)
    found = env(rendered(single).node_env)
    assert "NCCL_IB_HCA" not in found
    assert found["NCCL_IB_GID_INDEX"] == "3"
    assert found["NCCL_SOCKET_IFNAME"] == found["GLOO_SOCKET_IFNAME"] == "eth9"


def test_lab_variant__has_nothing_of_a_gpu():
    files = rendered(name="lab-cpu")
    assert "NCCL" not in files.node_env
    assert "CUDA" not in files.engine_env
    assert not {"moe-backend", "gpu-memory-utilization"} & set(yaml.safe_load(files.serve_yaml))


def test_layout__moves_every_path_of_the_engine():
    files = render(load(ENV / "flash-tp2.env"), HEAD, Layout("/a/current", "/b", "/c"))
    found = env(files.engine_env)
    assert found["PATH"].startswith("/a/current/venv/bin:/usr/local/cuda-13.3/bin:")
    assert found["TWINSPARK_REPORT_DIR"] == "/c/overlay"
    assert not [value for value in found.values() if "/var/cache" in value or "/opt/" in value]


def test_toolkit__moves_the_compiler():
    found = env(rendered(CUDA_HOME="/x/cuda").engine_env)
    assert "/x/cuda/bin" in found["PATH"].split(":")
    assert found["DG_JIT_NVCC_COMPILER"] == "/x/cuda/bin/nvcc"
