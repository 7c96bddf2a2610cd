# ruff: noqa: E402 - skipped before it imports what is not there
from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from twinspark.kernels import c128a_metadata
from twinspark.kernels.c128a_metadata.reference import c128a_metadata as reference
from twinspark.kernels.config import Config
from twinspark.kernels.dispatch import KernelError

pytestmark = pytest.mark.vllm
WIDTH, PAGE = 1536, 2
UNTOUCHED = -7


def arguments(positions: list[int], decodes: int, active: int) -> list:
    torch.manual_seed(len(positions))
    tokens = len(positions)
    buffers = [torch.full((tokens + 2, WIDTH), UNTOUCHED, dtype=torch.int32) for _ in range(2)]
    return [
        torch.tensor(positions, dtype=torch.int64),
        128,
        decodes,
        torch.arange(tokens, dtype=torch.int32) % 3,
        torch.randint(0, 5000, (3, WIDTH // PAGE), dtype=torch.int32),
        PAGE,
        torch.zeros(tokens, dtype=torch.int64),
        buffers[0],
        torch.full((tokens + 2,), UNTOUCHED, dtype=torch.int32),
        buffers[1],
        active,
    ]


def build(args: list):
    run, _ = c128a_metadata.dispatch(args[0], args[4], args[7], args[9], args[10])
    return run(*args)


def check(args: list) -> None:
    decode, lens, prefill = build(args)
    rows, want_lens, want_prefill = reference(*args[:7], args[10])
    assert torch.equal(lens.long(), want_lens)
    assert torch.equal(prefill.long(), want_prefill)
    for have, want in zip(decode, rows, strict=True):
        assert torch.equal(have[: len(want)].long(), want)


@pytest.mark.parametrize(
    ("positions", "decodes", "active"),
    [
        ([0], 1, 128),
        ([126, 127, 128, 255], 4, 128),
        ([5000, 40_000, 130], 3, 512),
        ([0, 127, 128, 9999], 0, 128),
        ([70_000, 3, 640, 641, 130_000], 2, 1024),
        ([190_000, 190_000], 1, 1500),
    ],
)
def test_metadata__are_the_definition(positions, decodes, active):
    check(arguments(positions, decodes, active))


def test_decode_rows__lie_at_the_buffers_stride_whatever_the_step():
    """What a captured graph reads: the capture's pointer and stride, at any later step."""
    args = arguments([5000, 5001, 5002], 3, 128)
    decode, _, _ = build(args)
    assert decode.stride(0) == WIDTH
    captured = args[7].as_strided((3, WIDTH), (WIDTH, 1))
    rows, _, _ = reference(*args[:7], 128)
    for have, want in zip(captured, rows, strict=True):
        assert torch.equal(have[: len(want)].long(), want)


def test_decode_rows__are_written_to_the_end_of_128_entries_and_no_further():
    args = arguments([0, 200 * 128, 256 * 128 - 1], 3, 1024)
    decode, _, _ = build(args)
    for row, count, end in zip(decode, (0, 200, 256), (128, 256, 256), strict=True):
        assert bool((row[count:end] == -1).all())
        assert bool((row[end:] == UNTOUCHED).all())


def test_padding_tokens__have_length_zero():
    args = arguments([5000, 5000], 2, 128)
    args[6][1] = -1
    _, lens, _ = build(args)
    assert lens.tolist() == [39, 0]


def test_no_tokens__is_nothing_to_do():
    decode, lens, prefill = build(arguments([], 0, 128))
    assert decode.shape == (0, WIDTH)
    assert lens.shape == (0,)
    assert prefill.shape == (0, 128)


def test_table__entries_past_a_row_are_never_followed():
    args = arguments([300], 1, 128)
    args[4][:, 1:] = 2**31 - 1
    check(args)


def test_addresses__pass_two_to_the_31st():
    args = arguments([300, 301], 2, 128)
    stride = 2**31 + 128
    args[7] = torch.empty(stride + WIDTH, dtype=torch.int32).as_strided((2, WIDTH), (stride, 1))
    check(args)


def test_dispatch__refuses_a_step_wider_than_the_buffer():
    args = arguments([0], 1, WIDTH + 1)
    with pytest.raises(KernelError, match="1537 compressed tokens do not fit a buffer row of 1536"):
        build(args)


def test_dispatch__refuses_with_the_argument_and_the_shapes():
    args = arguments([0], 1, 128)
    args[4] = args[4].long()
    with pytest.raises(KernelError, match=r"block_table must be .*; got positions \("):
        build(args)


def test_no_compressed_tokens__still_have_their_lengths_written():
    args = arguments([5000, 0, 300], 2, 0)
    decode, lens, prefill = build(args)
    assert lens.tolist() == [0, 0]
    assert bool((decode == UNTOUCHED).all())
    assert prefill.shape == (1, 0)


def changed(which: int, value):
    args = arguments([5000, 300, 130], 2, 128)
    args[which] = value(args[which]) if callable(value) else value
    return args


@pytest.mark.parametrize(
    ("said", "args"),
    [
        ("compress_ratio is 0", changed(1, 0)),
        ("block_size is 0", changed(5, 0)),
        ("4 of 3 tokens decode", changed(2, 4)),
        ("-1 of 3 tokens decode", changed(2, -1)),
        ("-1 compressed tokens do not fit", changed(10, -1)),
        ("token_to_req_indices is too short", changed(3, lambda a: a[:1])),
        ("slot_mapping is too short", changed(6, lambda a: a[:1])),
        ("global_decode_buffer is too short", changed(7, lambda a: a[:1])),
        ("decode_lens_buffer is too short", changed(8, lambda a: a[:1])),
        ("prefill_buffer is too short", changed(9, lambda a: a[:0])),
        ("token_to_req_indices must be", changed(3, lambda a: a.long())),
        ("slot_mapping must be", changed(6, lambda a: a.int())),
        ("decode_lens_buffer must be", changed(8, lambda a: a[0])),
    ],
)
def test_launch__refuses_what_dispatch_is_not_given(said, args):
    with pytest.raises(KernelError, match=rf"c128a_metadata: {said}.*; got .*block_table \("):
        build(args)


@pytest.mark.parametrize("config", [Config(m=1, n=1000), Config(m=2, n=1024)])
def test_dispatch__refuses_a_configuration_that_the_kernel_is_not_right_with(config):
    args = arguments([0], 1, 128)
    with pytest.raises(KernelError, match=r"c128a_metadata: [mn]="):
        c128a_metadata.dispatch(args[0], args[4], args[7], args[9], args[10], config=config)
