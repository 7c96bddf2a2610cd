"""The core on an engine of three small modules, in this process; no vLLM, no torch."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from pathlib import Path

import pytest

from twinspark import overrides, patching, sources
from twinspark.patching import Context, Overlay, Patch, PatchError, Registry
from twinspark.report import Report

ENGINE = {
    "toyengine/__init__.py": "",
    "toyengine/zero.py": (
        "def helper():\n    return 1\n\n\n"
        "class Zeroer:\n    def zero(self):\n        return 'stock'\n\n"
        "    @staticmethod\n    def plan():\n        return 'stock plan'\n"
    ),
    "toyengine/user.py": "from toyengine.zero import helper\n\n\ndef use():\n    return helper()\n",
}


@pytest.fixture
def root(tmp_path, monkeypatch):
    for name, text in ENGINE.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("toyengine")]:
        del sys.modules[name]


def patch_of(root, *targets, install=None, watches=(), **changes) -> Patch:
    def replace_all(edit):
        for target in targets:
            module, name = sources.split(target)
            if module == edit.module.__name__:
                edit.replace(name, lambda *_: "patched")

    record = Patch(
        id="1-toy", title="t", layer="allocator", targets=targets,
        upstream_sha256={t: sources.digest_in(root, t) or "" for t in (*targets, *watches)},
        vllm=("0.27.1",), symptom="s", cause="c", fix="f", upstream="u", remove_when="r",
        constraint="k", applies=lambda _: None, install=install or replace_all,
    )  # fmt: skip
    return dataclasses.replace(record, **changes)


@pytest.fixture
def arm(root):  # noqa: ARG001 - the engine has to be there
    armed = []

    def start(*patches, version="0.27.1", chosen=None, context=None, report=None):
        overlay = Overlay(
            Registry(patches), context or Context("cuda", (12, 1)),
            report or Report(version, "0"), chosen,
        )  # fmt: skip
        armed.append(overlay)
        overlay.arm(version)
        return overlay

    yield start
    for overlay in armed:
        overlay.uninstall()


ZERO = "toyengine.zero:Zeroer.zero"


def test_patch__waits_for_its_module_and_imports_nothing(root, arm):
    overlay = arm(patch_of(root, ZERO))
    assert "toyengine.zero" not in sys.modules
    assert overlay.report.state_of("1-toy") == "armed"
    module = importlib.import_module("toyengine.zero")
    assert overlay.report.state_of("1-toy") == "applied"
    assert module.Zeroer().zero() == "patched"


def test_patch__installs_at_once_into_a_loaded_module(root, arm):
    module = importlib.import_module("toyengine.zero")
    arm(patch_of(root, ZERO))
    assert module.Zeroer().zero() == "patched"


def test_patch__of_two_modules_is_armed_until_both_came(root, arm):
    overlay = arm(patch_of(root, ZERO, "toyengine.user:use"))
    importlib.import_module("toyengine.zero")
    assert overlay.report.state_of("1-toy") == "armed"
    assert importlib.import_module("toyengine.user").use() == "patched"
    assert overlay.report.state_of("1-toy") == "applied"


def test_patch__replaces_the_name_that_a_consumer_imported(root, arm):
    arm(patch_of(root, "toyengine.user:helper"))
    assert importlib.import_module("toyengine.user").use() == "patched"
    assert importlib.import_module("toyengine.zero").helper() == 1


def test_uninstall__puts_the_originals_back(root, arm):
    overlay = arm(patch_of(root, ZERO, "toyengine.zero:Zeroer.plan"))
    zeroer = importlib.import_module("toyengine.zero").Zeroer
    overlay.uninstall()
    assert (zeroer().zero(), zeroer.plan(), zeroer().plan()) == ("stock", *["stock plan"] * 2)
    assert overlay.finder not in sys.meta_path


def test_source__differing_aborts_the_import_every_time(root, arm):
    path = root / "toyengine/zero.py"
    overlay = arm(patch_of(root, ZERO))
    path.write_text(path.read_text().replace("'stock'", "'newer'"))
    for _ in range(2):
        with pytest.raises(PatchError, match=r"source of toyengine\.zero:Zeroer\.zero"):
            importlib.import_module("toyengine.zero")
        assert "toyengine.zero" not in sys.modules
    assert overlay.report.state_of("1-toy") == "failed"


def test_source__of_a_relied_on_neighbour_counts_too(root, arm):
    patch = patch_of(root, ZERO, watches=("toyengine.user:use",))
    path = root / "toyengine/user.py"
    path.write_text(path.read_text().replace("helper()", "helper() + 1"))
    arm(patch)
    with pytest.raises(PatchError, match=r"toyengine\.user:use"):
        importlib.import_module("toyengine.zero")


def test_source__may_change_elsewhere_in_the_file(root, arm):
    patch = patch_of(root, ZERO)
    path = root / "toyengine/zero.py"
    path.write_text("\n\n" + path.read_text().replace("return 1", "return 2"))
    arm(patch)
    assert importlib.import_module("toyengine.zero").Zeroer().zero() == "patched"


def test_source__override_installs_and_says_so(root, arm, caplog):
    patch = patch_of(root, ZERO)
    patch = dataclasses.replace(patch, upstream_sha256={ZERO: "0" * 64})
    overlay = arm(patch, chosen=overrides.parse("hash=1-toy", frozenset({"1-toy"})))
    with caplog.at_level("WARNING", logger="vllm.twinspark"):
        assert importlib.import_module("toyengine.zero").Zeroer().zero() == "patched"
    assert "TWINSPARK OVERRIDE" in caplog.text
    assert "overridden" in overlay.report.as_dict()["patches"][0]["reason"]


def test_target__missing_fails(root, arm):
    patch = patch_of(root, "toyengine.zero:Zeroer.gone")
    arm(patch)
    with pytest.raises(PatchError, match="does not exist"):
        importlib.import_module("toyengine.zero")


def test_target__already_replaced_by_somebody_else_fails(root, arm):
    module = importlib.import_module("toyengine.zero")
    module.Zeroer.zero = lambda _: "theirs"
    with pytest.raises(PatchError, match="already replaced"):
        arm(patch_of(root, ZERO))


def test_target__has_one_owner(root):
    first = patch_of(root, ZERO)
    with pytest.raises(PatchError, match=r"owned by 1-toy and by 2-toy"):
        Registry([first, dataclasses.replace(first, id="2-toy")])


def test_target__of_another_patch_cannot_be_edited(root, arm):
    def trespass(edit):
        edit.replace("helper", lambda: 2)

    arm(patch_of(root, ZERO, install=trespass))
    with pytest.raises(PatchError, match="does not own"):
        importlib.import_module("toyengine.zero")


def test_install__that_raises_aborts(root, arm):
    def broken(edit):
        edit.original("Zeroer.nothing").x()

    overlay = arm(patch_of(root, ZERO, install=broken))
    with pytest.raises(PatchError, match=r"install in toyengine\.zero raised"):
        importlib.import_module("toyengine.zero")
    assert overlay.report.state_of("1-toy") == "failed"


@pytest.mark.parametrize("version", ["0.27.0", "0.28.0", "0.27.10", "0.27.1rc1"])
def test_version__other_than_the_patch_was_written_for_fails(root, arm, version):
    with pytest.raises(PatchError, match=r"written for vLLM 0\.27\.1"):
        arm(patch_of(root, ZERO), version=version)


def test_version__local_part_does_not_count(root, arm):
    overlay = arm(patch_of(root, ZERO), version="0.27.1+cpu")
    assert overlay.report.state_of("1-toy") == "armed"


def test_patch__that_does_not_apply_is_skipped_with_its_reason(root, arm):
    patch = patch_of(root, ZERO, applies=lambda context: context.unless_sm12x("no kernel there"))
    overlay = arm(patch, context=Context("cpu"))
    assert importlib.import_module("toyengine.zero").Zeroer().zero() == "stock"
    entry = overlay.report.as_dict()["patches"][0]
    assert (entry["state"], entry["reason"]) == (
        "skipped",
        "not compute capability 12.x but cpu: no kernel there",
    )


@pytest.mark.parametrize("text", ["hash=99-none", "skip=x", "version=0.28.0", "platform=", "on"])
def test_override__unknown_is_refused(text):
    with pytest.raises(ValueError, match="TWINSPARK_OVERLAY_OVERRIDE"):
        overrides.parse(text, frozenset({"1-toy"}))


def test_override__all_keys():
    parsed = overrides.parse(
        "version=any, skip=1-toy,hash=1-toy,platform=cuda/12.1", frozenset({"1-toy"})
    )
    assert parsed == overrides.Overrides(
        True, frozenset({"1-toy"}), frozenset({"1-toy"}), "cuda", (12, 1)
    )


def test_layers__are_checked(root):
    with pytest.raises(PatchError, match="layer"):
        Registry([patch_of(root, ZERO, layer="kitchen")])


def test_hook__leaves_other_imports_alone(root, arm):
    arm(patch_of(root, ZERO))
    user = importlib.import_module("toyengine.user")
    loader = sys.modules["toyengine.zero"].__spec__.loader
    assert user.use() == 1
    assert "exec_module" not in vars(loader)
    assert Path(sys.modules["toyengine.zero"].__file__).parent == root / "toyengine"
    assert patching.LAYERS[0] == "config"
