"""C128A index metadata, from the definition."""
# ruff: noqa: PLR0913, PLR0917 - the operation's own arguments

from __future__ import annotations

import torch


def c128a_metadata(
    positions: torch.Tensor,
    ratio: int,
    decodes: int,
    requests: torch.Tensor,
    block_table: torch.Tensor,
    page: int,
    slots: torch.Tensor,
    active: int,
) -> tuple[list[torch.Tensor], torch.Tensor, torch.Tensor]:
    """What each token may attend to, in compressed tokens.

    Args:
        positions: [T] int64.
        ratio: Tokens that one compressed token stands for (128).
        decodes: Tokens [0, decodes) decode, the rest prefill.
        requests: [T] int32, row of `block_table` of each token.
        block_table: [requests, pages] int32.
        page: Compressed tokens a block.
        slots: [T] int64; negative marks a padding token.
        active: Cap on compressed tokens a row.

    Returns:
        For each decode token its global slots in order; [decodes] lengths (0 for padding tokens);
        [T - decodes, active] local indices, -1 past each row's end.
    """
    counts = ((positions + 1) // ratio).clamp(max=active)
    decode = []
    for token in range(decodes):
        at = torch.arange(int(counts[token]))
        blocks = block_table[int(requests[token])].long()[at // page]
        decode.append(blocks * page + at % page)
    lens = torch.where(slots[:decodes] >= 0, counts[:decodes], 0)
    at = torch.arange(active).expand(len(positions) - decodes, active)
    prefill = torch.where(at < counts[decodes:, None], at, -1)
    return decode, lens, prefill
