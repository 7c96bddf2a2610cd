from __future__ import annotations

import json
import subprocess
import sys

import pytest
import yaml

from env.variants import ENV, SHIPPED, edited
from twinspark.cli import main


def run(capsys, *words):
    status = main(["variant", *map(str, words)])
    return status, capsys.readouterr()


@pytest.fixture
def bad(tmp_path):
    path = tmp_path / "bad.env"
    path.write_text(edited("flash-tp2", BLOCK_SIZE="64"))
    return path


def test_check__passes_the_shipped_files(capsys):
    status, printed = run(capsys, "check", *SHIPPED)
    assert status == 0
    assert printed.out.count(": ok\n") == len(SHIPPED)


def test_check__fails_on_one_bad_file_among_good_ones(capsys, bad):
    status, printed = run(capsys, "check", ENV / "flash-tp2.env", bad)
    assert status == 1
    assert f"{bad}:" in printed.err
    assert "BLOCK_SIZE=256" in printed.err


def test_check__says_the_same_as_json(capsys, bad):
    status, printed = run(capsys, "check", "--json", ENV / "flash-tp2.env", bad)
    found = json.loads(printed.out)
    assert status == 1
    assert found["schema"] == "twinspark.variant-check/1"
    assert found["files"][str(ENV / "flash-tp2.env")] == []
    assert "BLOCK_SIZE" in found["files"][str(bad)][0]


def test_render__writes_the_three_files_of_a_node(capsys, tmp_path):
    words = ("--inventory", ENV / "inventory.yml", "--host", "spark2", "--output", tmp_path)
    status, _ = run(capsys, "render", ENV / "flash-tp2.env", *words)
    assert status == 0
    assert {path.name for path in tmp_path.iterdir()} == {"serve.yaml", "engine.env", "node.env"}
    assert "headless: true\n" in (tmp_path / "serve.yaml").read_text()


def test_render__names_the_hosts_that_there_are(capsys):
    words = ("--inventory", ENV / "inventory.yml", "--host", "spark9")
    status, printed = run(capsys, "render", ENV / "flash-tp2.env", *words)
    assert status == 1
    assert "name one of spark1, spark2" in printed.err


def test_diff__names_the_keys_that_differ_and_no_others(capsys):
    files = (ENV / "flash-tp2.env", ENV / "flash-tp2-nospec.env")
    status, printed = run(capsys, "diff", "--json", *files)
    assert status == 0
    assert json.loads(printed.out)["keys"] == {
        "SPEC_METHOD": {"flash-tp2": "dspark", "flash-tp2-nospec": "none"},
        "SPEC_TOKENS": {"flash-tp2": "5", "flash-tp2-nospec": "0"},
    }
    assert "SPEC_METHOD" in run(capsys, "diff", *files)[1].out


def test_plan__gives_need_and_pool_and_calls_them_rendered(capsys):
    status, printed = run(capsys, "plan", "--json", ENV / "flash-tp2-c12.env")
    found = json.loads(printed.out)
    assert status == 0
    assert found["truth"] == "rendered"
    assert found["in_flight"] == 16_384
    assert found["needs"]["16384"] == found["need"]
    assert "11.04 GiB" in run(capsys, "plan", ENV / "flash-tp2-c12.env")[1].out


def test_plan__does_not_apply_to_the_cpu_engine(capsys):
    assert run(capsys, "plan", ENV / "lab-cpu.env")[0] == 2


def test_document__tells_drift_from_none(capsys, tmp_path):
    readme = tmp_path / "README.md"
    assert run(capsys, "document", *SHIPPED, "--write", readme)[0] == 0
    assert run(capsys, "document", *SHIPPED, "--check", readme)[0] == 0
    readme.write_text(readme.read_text() + "edited by hand\n")
    status, printed = run(capsys, "document", *SHIPPED, "--check", readme)
    assert status == 1
    assert "-edited by hand" in printed.err


@pytest.mark.parametrize("name", ["Flash.env", "a b.env", "x@y.env", "flash", "-a.env", "a.b.env"])
def test_file_whose_name_cannot_name_a_unit__is_refused(capsys, tmp_path, name):
    path = tmp_path / name
    path.write_text((ENV / "flash-tp2.env").read_text())
    status, printed = run(capsys, "check", path)
    assert status == 1
    assert "names the unit" in printed.err


def test_missing_file__is_named(capsys, tmp_path):
    status, printed = run(capsys, "plan", tmp_path / "none.env")
    assert status == 1
    assert "none.env: cannot be read" in printed.err


def test_plan__of_a_file_that_memory_alone_refuses_shows_the_table_and_refuses(capsys, tmp_path):
    path = tmp_path / "big.env"
    path.write_text(edited("flash-tp2", MAX_NUM_BATCHED_TOKENS="16384"))
    status, printed = run(capsys, "plan", path)
    assert status == 1
    assert "more than the pool" in printed.out
    assert "big (rendered, not measured)" in printed.out
    assert "MAX_MODEL_LEN: 1048576 tokens need" in printed.err


def test_plan__of_a_file_that_another_rule_refuses_shows_nothing(capsys, bad):
    status, printed = run(capsys, "plan", bad)
    assert (status, printed.out) == (1, "")


def test_diff__keeps_every_value_whole(capsys, tmp_path):
    path = tmp_path / "long.env"
    path.write_text(edited("flash-tp2", MODEL="/srv/" + "m" * 200))
    status, printed = run(capsys, "diff", ENV / "flash-tp2.env", path)
    assert status == 0
    assert printed.out.count("m") >= 200
    assert "\N{HORIZONTAL ELLIPSIS}" not in printed.out


@pytest.mark.parametrize("head", [{}, {"spark1": {}, "spark3": {}}])
def test_render__wants_one_head_and_one_worker(capsys, tmp_path, head):
    inventory = tmp_path / "inventory.yml"
    parts = {"head": {"hosts": head}, "worker": {"hosts": {"spark2": {}}}}
    inventory.write_text(yaml.safe_dump({"sparks": {"children": parts}}))
    words = ("--inventory", inventory, "--host", "spark2")
    status, printed = run(capsys, "render", ENV / "flash-tp2.env", *words)
    assert status == 1
    assert "must consist of the groups head and worker with one host each" in printed.err


def test_closed_pipe__is_silent():
    program = "import sys; from twinspark.cli import main; sys.exit(main(sys.argv[1:]))"
    words = [sys.executable, "-c", program, "variant", "document", *map(str, SHIPPED)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as started:
        started.stdout.close()
        assert started.stderr.read() == b""
