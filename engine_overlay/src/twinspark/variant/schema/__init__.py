"""The schema of a variant: every key, with unit, bounds, default, source and destination."""

from twinspark.variant.schema.variant import Variant

__all__ = ["Variant"]
