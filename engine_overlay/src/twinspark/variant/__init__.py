"""Variants: one env file each, checked by a schema and rendered for each host.

variant = load(Path("env/flash-tp2.env"))      # VariantError names file and line
rendered = render(variant, host)  # serve.yaml, engine.env, node.env
"""

from twinspark.variant.errors import HostError, Problem, VariantError
from twinspark.variant.host import Host, Rail
from twinspark.variant.loader import load, loads
from twinspark.variant.render import Rendered, render
from twinspark.variant.schema import Variant

__all__ = [
    "Host",
    "HostError",
    "Problem",
    "Rail",
    "Rendered",
    "Variant",
    "VariantError",
    "load",
    "loads",
    "render",
]
