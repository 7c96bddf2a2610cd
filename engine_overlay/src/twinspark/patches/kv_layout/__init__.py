"""The KV cache: records, pages, groups."""
