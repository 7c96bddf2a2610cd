from __future__ import annotations

import pytest

from render import golden, scenarios
from twinspark.variant import load
from twinspark.variant.inventory import read_inventory
from twinspark.variant.keys import Flag, key_of
from twinspark.variant.render import flags
from twinspark.variant.schema import Variant

pytestmark = pytest.mark.vllm

SWITCH = "enable-flashinfer-autotune"


def cases():
    """(file below golden/, flags as rendered) of every golden serve.yaml."""
    for inventory, pattern in golden.INVENTORIES.items():
        for host in read_inventory(golden.REPOSITORY / "env" / inventory).values():
            for path in sorted((golden.REPOSITORY / "env").glob(pattern)):
                where = f"{inventory.removesuffix('.yml')}/{host.name}/{path.stem}/serve.yaml"
                yield where, flags(load(path), host)


CASES = dict(cases())


@pytest.fixture(scope="module")
def parsed(stock_engine, tmp_path_factory):
    """All files through the real parser, in one process."""
    folder = tmp_path_factory.mktemp("parser")
    (folder / "dropped.yaml").write_text(f"model: /m\n{SWITCH}: false\n")
    (folder / "off.yaml").write_text(f"model: /m\nno-{SWITCH}: true\n")
    configs = {str(golden.GOLDEN / where): [*found, "headless"] for where, found in CASES.items()}
    configs |= {str(folder / name): [SWITCH] for name in ("dropped.yaml", "off.yaml")}
    found = stock_engine.run(scenarios.parse, configs, timeout=400)
    found["dropped"] = found["values"][str(folder / "dropped.yaml")]
    found["off"] = found["values"][str(folder / "off.yaml")]
    return found


@pytest.mark.parametrize("where", CASES)
def test_serve_yaml__gives_the_real_parser_every_rendered_value(parsed, where):
    found = parsed["values"][str(golden.GOLDEN / where)]
    wanted = {
        flag: False if flag.startswith("no-") else value for flag, value in CASES[where].items()
    }
    assert wanted
    assert {flag: found[flag] for flag in wanted} == wanted


@pytest.mark.parametrize("where", CASES)
def test_serve_yaml__is_headless_on_the_worker_only(parsed, where):
    found = parsed["values"][str(golden.GOLDEN / where)]
    assert found["headless"] is (found["node-rank"] == 1)


def test_false_in_the_config_file__is_dropped_by_the_parser_and_no_flag_is_not(parsed):
    assert parsed["dropped"] == {SWITCH: None}
    assert parsed["off"] == {SWITCH: False}


def test_schema__names_only_flags_that_the_parser_has_both_ways(parsed):
    for name, field in Variant.model_fields.items():
        key = key_of(field)
        if isinstance(key.to, Flag):
            assert f"--{key.to.name}" in parsed["options"], name
            if isinstance(field.default, bool):
                assert f"--no-{key.to.name}" in parsed["options"], name


def test_engine_env__names_only_vllm_variables_that_the_wheel_reads(parsed):
    rendered = {
        line.split("=")[0]
        for text in golden.renders().values()
        for line in text.splitlines()
        if line.startswith("VLLM_")
    }
    assert len(rendered) > 5
    assert rendered <= set(parsed["variables"])
