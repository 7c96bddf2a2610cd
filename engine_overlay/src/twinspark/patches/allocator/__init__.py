"""Blocks of the KV cache: who owns them, what is in them."""
