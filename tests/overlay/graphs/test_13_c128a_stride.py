"""#13: captured and replayed row strides differ."""

# ruff: noqa: PLC0415 - scenarios import the engine where it is, not where pytest is

from __future__ import annotations

import pytest

from overlay.engine import unchanged
from twinspark.patches.graphs.c128a_stride import written_bytes

pytestmark = pytest.mark.vllm
PATCH = "13-c128a-stride"
RATIO = 128


class Server:
    """The real builder, and a captured decode kernel emulated by the view that it captured.

    A FULL graph bakes in the address, the row stride and the width of what `build` returned at
    capture; a replay reads there, bounded by the lengths of the step.
    """

    def __init__(self, max_model_len, max_tokens=64, k=5):
        from types import SimpleNamespace

        import torch
        from vllm.models.deepseek_v4.sparse_mla import DeepseekV4FlashMLAMetadataBuilder

        from overlay.deepseek import specs

        spec = next(s for name, s in specs((128,)).items() if name.endswith("mla"))
        config = SimpleNamespace(
            model_config=SimpleNamespace(
                max_model_len=max_model_len, hf_config=SimpleNamespace(index_topk=512)
            ),
            scheduler_config=SimpleNamespace(max_num_batched_tokens=max_tokens),
            speculative_config=SimpleNamespace(num_speculative_tokens=k, parallel_drafting=True),
            parallel_config=SimpleNamespace(decode_context_parallel_size=1),
        )
        self.max_model_len = max_model_len
        self.pages = -(-max_model_len // spec.block_size)
        self.page_slots = spec.block_size // RATIO
        self.builder = DeepseekV4FlashMLAMetadataBuilder(spec, [], config, torch.device("cpu"))
        self.builder.c128a_global_decode_buffer.fill_(-7)  # torch.empty: anything may be there
        self.builder.c128a_decode_lens_buffer.fill_(0)

    def step(self, requests, query_len, *, max_seq_len=None):
        """Build one uniform decode step.

        Args:
            requests: (first context position of the step, first block id) of each request.
            query_len: Tokens a request.
            max_seq_len: As the runner tells it; the longest of the step when omitted.
        """
        from types import SimpleNamespace

        import torch

        tokens = len(requests) * query_len
        starts = torch.arange(0, tokens + 1, query_len, dtype=torch.int32)
        seq_lens = torch.tensor([p + query_len for p, _ in requests], dtype=torch.int32)
        table = torch.stack(
            [torch.arange(b, b + self.pages, dtype=torch.int32) for _, b in requests]
        )
        rows = torch.repeat_interleave(torch.arange(len(requests), dtype=torch.int32), query_len)
        positions = torch.cat([torch.arange(p, p + query_len) for p, _ in requests])
        common = SimpleNamespace(
            num_reqs=len(requests), num_actual_tokens=tokens, max_query_len=query_len,
            max_seq_len=max_seq_len or int(seq_lens.max()), query_start_loc=starts,
            query_start_loc_cpu=starts, seq_lens=seq_lens, block_table_tensor=table,
            slot_mapping=positions.clone(), positions=positions,
            token_to_req_indices=lambda _buffer: rows,
        )  # fmt: skip
        self.expected = [
            [
                (block + slot // self.page_slots) * self.page_slots + slot % self.page_slots
                for slot in range((position + token + 1) // RATIO)
            ]
            for position, block in requests
            for token in range(query_len)
        ]
        metadata = self.builder.build(0, common)
        return metadata.c128a_global_decode_topk_indices

    def capture(self, requests, query_len):
        view = self.step([(0, 0)] * requests, query_len, max_seq_len=self.max_model_len)
        self.captured = (view.shape[0], view.shape[-1], view.stride(0), view.storage_offset())
        return self

    def replayed_rows(self):
        """Row for row: whether the captured kernel reads what this step's rows are."""
        import torch

        rows, width, stride, offset = self.captured
        buffer = self.builder.c128a_global_decode_buffer
        seen = torch.as_strided(buffer, (rows, width), (stride, 1), offset)
        lengths = self.builder.c128a_decode_lens_buffer
        return [
            len(expected) == int(lengths[row])
            and seen[row, : int(lengths[row])].tolist() == expected
            for row, expected in enumerate(self.expected)
        ]


def scenario_solo(max_model_len):
    """A fresh server, alone; then alone again after a busy step of long requests."""
    server = Server(max_model_len).capture(requests=1, query_len=6)
    server.step([(1024, 10)], 6)
    fresh = server.replayed_rows()
    server.step([(min(65_600, max_model_len - 64), 50 + 700 * i) for i in range(8)], 6)
    server.step([(1024, 10)], 6)
    return {"fresh": fresh, "after a busy step": server.replayed_rows(),
            "stride": server.captured[2]}  # fmt: skip


def scenario_eager_view(context):
    """What an eager (not captured) step gets: contiguous rows that hold this step's slots."""
    server = Server(1 << 20)
    view = server.step([(context, 3), (200, 9000)], 6)
    rows = [view[i, 0, : len(e)].tolist() == e for i, e in enumerate(server.expected)]
    return {"rows": rows, "width": view.shape[-1], "dense": view.is_contiguous()}


def scenario_written(context):
    """Entries of the decode buffer that one step of six rows writes."""
    server = Server(1 << 20)
    buffer = server.builder.c128a_global_decode_buffer
    buffer.fill_(-7)
    server.step([(context, 3)], 6)
    return int((buffer != -7).sum())


def scenario_property(examples):
    """Random context limits, batch shapes, contexts and block ids, step after step."""
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import strategies as st

    limits = st.sampled_from([4096, 16_384, 16_385, 32_768, 50_000, 131_072])

    @settings(max_examples=examples, deadline=None, derandomize=True, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(limits, st.integers(1, 4), st.integers(1, 7), st.data())
    def replays_read_their_step(limit, requests, query_len, data):
        server = Server(limit, max_tokens=32).capture(requests, query_len)
        request = st.tuples(st.integers(0, limit - query_len), st.integers(0, 1 << 20))
        for _ in range(data.draw(st.integers(1, 3))):
            batch = data.draw(st.lists(request, min_size=requests, max_size=requests))
            server.step(batch, query_len)
            assert all(server.replayed_rows()), (limit, batch, server.replayed_rows())

    replays_read_their_step()
    return "held"


def scenario_logged(packed):
    """What is logged over a capture and batches; `packed`: another has put packed rows back."""
    import logging

    from vllm.models.deepseek_v4 import sparse_mla

    from twinspark import report

    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger("vllm.twinspark").addHandler(handler)
    logging.getLogger("vllm.twinspark").setLevel(logging.INFO)
    if packed:

        def narrow(*args, max_compressed_tokens):
            decode, lens, prefill = patched(*args, max_compressed_tokens=max_compressed_tokens)
            return decode[:, :max_compressed_tokens].contiguous(), lens, prefill

        patched = sparse_mla.build_c128a_topk_metadata
        sparse_mla.build_c128a_topk_metadata = narrow
    server = Server(1 << 20).capture(requests=1, query_len=6)
    for context in (1024, 70_000, 1024):
        server.step([(context, 10)], 6)
    return {"lines": [line for line in lines if "topk_width" in line],
            "fact": report.current().as_dict()["facts"]["c128a_widths"]}  # fmt: skip


def test_stride__reproduces_on_pristine(pristine):
    seen = pristine.run(scenario_solo, 1 << 20)
    assert seen["stride"] == 8192
    assert seen["fresh"] == [True] + [False] * 5, "not only after hours: from the first request"
    assert seen["after a busy step"] == [True] + [False] * 5


def test_stride__fixed(overlaid):
    seen = overlaid.run(scenario_solo, 1 << 20)
    assert seen == {"stride": 8192, "fresh": [True] * 6, "after a busy step": [True] * 6}


def test_stride__short_limits_were_never_wrong(pristine):
    assert pristine.run(scenario_solo, 16_384)["fresh"] == [True] * 6


@pytest.mark.parametrize("context", [100, 5_000, 700_000])
def test_view__is_dense_and_right_without_a_graph(overlaid, context):
    seen = overlaid.run(scenario_eager_view, context)
    assert seen == {"rows": [True] * 12, "width": 8192, "dense": True}


@pytest.mark.parametrize("context", [2_000, 65_000, 1_000_000])
def test_writes__are_as_narrow_as_stock(pristine, overlaid, context):
    entries = overlaid.run(scenario_written, context)
    assert entries == pristine.run(scenario_written, context)
    assert entries * 4 == written_bytes(6, context + 6, 8192)["narrow"]


def test_width__is_logged_once_and_the_guard_takes_it_for_right(overlaid):
    from twinspark.guards.checks import logs

    seen = overlaid.run(scenario_logged, False)
    (line,) = seen["lines"]
    found = logs._WIDTH.search(line)
    assert found
    assert {int(found[1])} <= logs.legitimate_widths(1 << 20)
    assert seen["fact"] == [8192]


def test_width__of_a_packed_build_is_what_the_guard_refuses(overlaid):
    from twinspark.guards.checks import logs

    seen = overlaid.run(scenario_logged, True)
    widths = {int(logs._WIDTH.search(line)[1]) for line in seen["lines"]}
    assert widths == set(seen["fact"]) == {128, 1024, 8192}
    assert not widths <= logs.legitimate_widths(1 << 20)


def test_stride__property_random_batches(overlaid):
    assert overlaid.run(scenario_property, 40, timeout=240) == "held"


def test_stride__property_fails_on_pristine(pristine):
    assert "AssertionError" in pristine.outcome(scenario_property, 40, timeout=240)["error"]


def test_stride__upstream_unchanged():
    unchanged(PATCH)
