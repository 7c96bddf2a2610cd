from __future__ import annotations

from render import golden


def test_golden_renders__are_what_the_renderer_makes_today():
    made = golden.renders()
    kept = {
        str(path.relative_to(golden.GOLDEN)): path.read_text(encoding="utf-8")
        for path in golden.GOLDEN.rglob("*")
        if path.is_file()
    }
    assert kept == made, "review and regenerate: .venv/bin/python tests/render/golden.py"


def test_golden_renders__cover_every_shipped_variant_on_both_hosts():
    shipped = {path.stem for path in (golden.REPOSITORY / "env").glob("*.env")}
    rendered: dict[str, set[str]] = {}
    for where in golden.renders():
        _, host, variant, _ = where.split("/")
        rendered.setdefault(variant, set()).add(host)
    assert set(rendered) == shipped
    assert {len(hosts) for hosts in rendered.values()} == {2}
