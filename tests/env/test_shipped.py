from __future__ import annotations

import re
from fractions import Fraction

import pytest

from env.variants import ENV, SHIPPED
from twinspark.variant import Variant, load
from twinspark.variant.document import document
from twinspark.variant.dotenv import read
from twinspark.variant.field import SOURCES
from twinspark.variant.keys import key_of
from twinspark.variant.plan import FREE_AT_START_BYTES, plan

NAMES = [path.stem for path in SHIPPED]

# The table that the variants were decided by.
COLUMNS = (
    "MAX_MODEL_LEN", "MAX_NUM_SEQS", "MAX_NUM_BATCHED_TOKENS", "GPU_MEMORY_UTILIZATION",
    "SPEC_METHOD", "SPEC_TOKENS", "CUDAGRAPH_MODE",
)  # fmt: skip
TABLE = {
    "flash-tp2": (1_048_576, 6, 4096, 0.80, "dspark", 5, "FULL_AND_PIECEWISE"),
    "flash-tp2-c12": (1_048_576, 12, 8192, 0.84, "dspark", 5, "FULL_AND_PIECEWISE"),
    "flash-tp2-c16": (350_000, 16, 8192, 0.84, "dspark", 5, "FULL_AND_PIECEWISE"),
    "flash-tp2-nospec": (1_048_576, 6, 4096, 0.80, "none", 0, "FULL_AND_PIECEWISE"),
    "flash-tp2-piecewise": (1_048_576, 6, 4096, 0.80, "dspark", 5, "PIECEWISE"),
}


def test_shipped_variants__include_the_table_s_and_the_lab_s():
    assert {*TABLE, "lab-cpu"} <= set(NAMES)


@pytest.mark.parametrize("name", TABLE)
def test_shipped_variant__has_the_table_s_values(name):
    variant = load(ENV / f"{name}.env")
    assert TABLE[name] == tuple(getattr(variant, key) for key in COLUMNS)
    assert (variant.KV_CACHE_DTYPE, variant.BLOCK_SIZE) == ("fp8_ds_mla", 256)
    assert (variant.MOE_BACKEND, variant.LINEAR_BACKEND) == ("marlin", "triton")
    assert (variant.ENABLE_FLASHINFER_AUTOTUNE, variant.ENABLE_PREFIX_CACHING) == (False, True)


@pytest.mark.parametrize("path", SHIPPED, ids=NAMES)
def test_shipped_variant__is_whole(path):
    """Every key that its model takes and that has a value by default stands in the file."""
    variant = load(path)
    said = {item.key for item in read(path)}
    wanted = {
        name
        for name, field in Variant.model_fields.items()
        if field.default is not None and variant.takes(key_of(field))
    }
    assert wanted <= said


@pytest.mark.parametrize("name", ["flash-tp2-nospec", "flash-tp2-piecewise"])
def test_control_variants__differ_from_the_default_in_their_own_keys_only(name):
    default, other = load(ENV / "flash-tp2.env"), load(ENV / f"{name}.env")
    differing = {
        key for key in Variant.model_fields if getattr(default, key) != getattr(other, key)
    }
    assert differing in ({"SPEC_METHOD", "SPEC_TOKENS"}, {"CUDAGRAPH_MODE"})


def test_default_variant__boots_on_every_kit_seen():
    assert plan(load(ENV / "flash-tp2.env")).boots_everywhere
    assert plan(load(ENV / "flash-tp2-c12.env")).granted > FREE_AT_START_BYTES


@pytest.mark.parametrize("name", TABLE)
def test_comment_on_the_pool__says_what_the_planner_says(name):
    text = (ENV / f"{name}.env").read_text()
    found = re.search(
        r"# 2 x (\d+) tokens in flight: ([\d.]+) GiB for one request of ([\d,]+) tokens, "
        r"in a pool of (\d+) GiB",
        text,
    )
    assert found
    budget = plan(load(ENV / f"{name}.env"))
    assert 2 * int(found[1]) == budget.in_flight
    assert abs(Fraction(found[2]) - Fraction(budget.need, 2**30)) <= Fraction(1, 200)
    assert int(found[3].replace(",", "")) == budget.context
    assert int(found[4]) * 2**30 == budget.pool


def test_key_table__has_not_drifted_from_the_schema():
    made = document({path.stem: load(path) for path in SHIPPED})
    assert (ENV / "README.md").read_text(encoding="utf-8") == made, (
        "regenerate: .venv/bin/twinspark variant document --write env/README.md"
    )


def test_schema__says_of_every_key_what_it_is_where_it_goes_and_who_says_so():
    for name, field in Variant.model_fields.items():
        key = key_of(field)
        assert field.description, name
        assert field.description.endswith("."), name
        assert len(key.source) > 5, name
        assert key.to.place in ("flag", "engine env", "host"), name


def test_key_table__explains_every_short_name_of_a_source():
    from_the_field = {"Reed", "Mia", "tony", "ecohash", "Anemll", "nepenth", "lutong", "CO"}
    assert from_the_field <= set(SOURCES)
    said = " ".join(key_of(field).source for field in Variant.model_fields.values())
    assert {name for name in SOURCES if name not in said} == set()
