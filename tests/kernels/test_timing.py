# ruff: noqa: E402 - the scripts are no package, and are skipped before they import what is not there
"""Timing without a GPU: a stand-in for torch.cuda whose clock the calls move."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

sys.path.insert(0, str(Path(__file__).parents[2] / "engine_overlay/benchmarks"))
import timing

pytestmark = pytest.mark.vllm


class Card:
    """Events read a clock; a graph replays the calls made while it was captured."""

    def __init__(self) -> None:
        self.ms = 0.0
        self.captured: list | None = None
        self.graphs = 0

    def launch(self, ms: float) -> None:
        if self.captured is None:
            self.ms += ms
        else:
            self.captured.append(ms)

    def Event(self, *, enable_timing):  # noqa: N802 - torch's name
        assert enable_timing
        return Event(self)

    def CUDAGraph(self):  # noqa: N802
        self.graphs += 1
        return Graph(self)

    @contextmanager
    def graph(self, graph):
        self.captured = graph.calls
        yield
        self.captured = None

    def synchronize(self) -> None:
        pass


class Event:
    def __init__(self, card):
        self.card, self.at = card, 0.0

    def record(self):
        self.at = self.card.ms

    def synchronize(self):
        pass

    def elapsed_time(self, end):
        return end.at - self.at


class Graph:
    def __init__(self, card):
        self.card, self.calls = card, []

    def replay(self):
        self.card.ms += sum(self.calls) / 2  # a graph's launches cost half here


@pytest.fixture
def card(monkeypatch):
    fake = Card()
    monkeypatch.setattr(torch, "cuda", fake)
    return fake


def test_measure__outside_a_graph_captures_nothing(card):
    calls = [lambda: card.launch(0.5)] * 2
    assert timing.measure(calls).median_us == pytest.approx(250)
    assert card.graphs == 1
    assert timing.measure(calls, graph=False).median_us == pytest.approx(500)
    assert card.graphs == 1


def test_measure__goes_round_every_set_at_least_once(card):
    seen = []

    def call(i):
        seen.append(i)
        card.launch(9.0)

    timed = timing.measure([lambda i=i: call(i) for i in range(200)], 3)
    assert timed.calls == 200
    assert seen[-200:] == list(range(200))


def test_measure__keeps_a_result_until_its_set_comes_again(card):
    """Else the allocator would give every call the same buffer, which the L2 holds."""
    alive: list[int] = []
    most = []

    class Result:
        def __init__(self):
            alive.append(1)
            most.append(len(alive))

        def __del__(self):
            alive.pop()

    def call():
        card.launch(0.5)
        return Result()

    timing.measure([call] * 3, 2)
    assert max(most) == 4
    assert alive == []


@pytest.mark.parametrize(("graphed", "alone"), [(2.0, 1.0), (1.0, 2.0)])
def test_memset__is_the_faster_of_graph_and_none(monkeypatch, graphed, alone):
    monkeypatch.setattr(timing.torch, "empty", lambda *_, **__: torch.zeros(1))

    def measure(_calls, _replays, *, graph):
        us = graphed if graph else alone
        return timing.Timing(us, us, us, 1, 1)

    monkeypatch.setattr(timing, "measure", measure)
    assert timing.memset_bandwidth(10) == pytest.approx(10e6)
