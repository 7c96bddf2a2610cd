"""An OpenAI server that answers like the recall model, with switches for its faults.

It keeps what matters to the guards: a prefix cache of KV blocks by salt, requests that prefill and
decode at the same time, logprobs with the model's known margin, and speculative-decode counters.
"""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from twinspark.guards import recall

WORDS = {word: token for token, word in enumerate(recall.vocabulary())}
PAGE = "<!DOCTYPE html><title>router</title>"
SHARP, RIVAL = recall.ANSWER_LOGPROB, recall.ANSWER_LOGPROB - recall.MARGIN_NATS


@dataclass
class Faults:
    """What is wrong with the server; the defaults are a healthy one."""

    hang_s: float = 0.0  # before every completion
    hang_first_s: float = 0.0  # before the next one only
    status: int = 200  # of completions; /health stays 200
    html: bool = False  # a page with status 200 in place of every answer
    raw: dict[str, str] = field(default_factory=dict)  # path -> body, sent as it is
    encoding: str = ""  # a Content-Encoding that the bodies do not have
    served: str = "recall"
    max_model_len: int = 32768
    version: str = "0.27.1+cpu"
    empty: bool = False  # stream without text
    endless: bool = False  # stream without an end
    cut: bool = False  # finish_reason length, no answer yet
    jitter: float = 0.0  # nats of noise on each logprob
    soften: float = 0.0  # nats off the answer's logprob
    lose: float = 0.0  # share of answers that turn to "?"
    lose_cached: bool = False  # answers from cached KV turn to "?"
    cache_reads: bool = True
    cache_details: bool = True
    zero_neighbour: bool = False  # three prefills at once damage block 1 of the second
    soft_alone: bool = False  # finding 13, an aged server
    soft_beside_decode: bool = False  # finding 13, a pure decode batch
    soft_beside_prefill: bool = False
    acceptance: list[float] = field(default_factory=lambda: [0.74, 0.55, 0.41, 0.30, 0.22])
    busy: int = 0  # foreign requests running
    rate: float = 400.0  # decoded tokens a second
    chat: dict[str, str] = field(default_factory=dict)  # word of the last message -> reply
    tool_arguments: str = '{"city": "Utrecht", "unit": "celsius"}'
    tool_finish: str = "tool_calls"
    corrupted: int = 0  # rows with NaN


class FakeServer:
    """Serves on a free port of 127.0.0.1 between `start` and `stop`."""

    def __init__(self, block_size: int = 32) -> None:
        self.block_size, self.faults = block_size, Faults()
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.blocks: dict[tuple[str, int], bool] = {}  # (salt, hash of the prefix) -> damaged
        self.lock, self.numbers = threading.Lock(), itertools.count()
        self.draw = random.Random(1)  # noqa: S311 - the same noise in every run
        self.prefilling: set[int] = set()
        self.decoding: set[int] = set()
        self.drafts, self.accepted = 0, [0.0] * 5
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def start(self) -> FakeServer:
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def stop(self) -> None:
        self.http.shutdown()
        self.http.server_close()

    # ---- the model

    def follow(self, ids: list[int], hidden: set[int]) -> int:
        """The token after `ids`, not looking into hidden blocks."""
        current = ids[-1]
        if current >= recall.Q0:
            current = current - recall.Q0 + recall.K0
        best = recall.NONE
        for at in range(len(ids) - 2, 0, -1):
            if ids[at] != current or (at + 1) // self.block_size in hidden:
                continue
            if ids[at - 1] == ids[-2]:
                return ids[at + 1]
            best = ids[at + 1] if best == recall.NONE else best
        return best

    def prefill(self, ids: list[int], salt: str, me: int) -> tuple[int, set[int]]:
        """Cached tokens, and the damaged blocks of this prompt; fills the cache."""
        full = len(ids) // self.block_size
        keys = [(salt, hash(tuple(ids[: (b + 1) * self.block_size]))) for b in range(full)]
        with self.lock:
            known = 0
            while known < full and keys[known] in self.blocks and self.faults.cache_reads:
                known += 1
            cached = min(known * self.block_size, len(ids) - 1)
            prefills = len(ids) - cached > self.block_size
            if prefills:
                self.prefilling.add(me)
        half_s = max(0.03, (len(ids) - cached) / 25_000)
        if prefills:
            time.sleep(half_s)
        with self.lock:
            crowd, order = len(self.prefilling), sorted(self.prefilling)
            hidden = {b for b in range(full) if self.blocks.get(keys[b])}
            for key in keys:
                self.blocks.setdefault(key, False)
            hit = (
                self.faults.zero_neighbour and crowd >= 3 and order.index(me) == 1
                if prefills
                else False
            )
            if hit and full > 1:
                self.blocks[keys[1]] = True  # after its own answer, as in the real fault
        if prefills:
            time.sleep(half_s)
            with self.lock:
                self.prefilling.discard(me)
        return cached, hidden

    def logprob(self, me: int) -> float:
        faults = self.faults
        others_decode = bool(self.decoding - {me})
        others_prefill = bool(self.prefilling - {me})
        soft = (
            (faults.soft_alone and not others_decode and not others_prefill)
            or (faults.soft_beside_decode and others_decode and not others_prefill)
            or (faults.soft_beside_prefill and others_prefill)
        )
        noise = self.draw.uniform(-faults.jitter, 0) if faults.jitter else 0.0
        return SHARP - faults.soften - (0.74 if soft else 0.0) + noise

    def answer(self, prompt: str | list[int], body: dict[str, Any], me: int) -> dict[str, Any]:
        """One choice with its private cached token count."""
        ids = prompt if isinstance(prompt, list) else tokens_of(prompt)
        cached, hidden = self.prefill(ids, body.get("cache_salt") or "", me)
        words: list[str] = []
        if isinstance(prompt, str) and "Repeated: " in prompt:
            words = prose_answer(prompt, self.lost(cached))
        sequence = list(ids)
        while not words or (not isinstance(prompt, str) and len(words) < body["max_tokens"]):
            token = recall.NONE if self.lost(cached) else self.follow(sequence, hidden)
            sequence.append(token)
            words.append(recall.word(token))
            if (token == recall.EOS and not body.get("ignore_eos")) or isinstance(prompt, str):
                break
        self.speculate(len(words))
        logprob = self.logprob(me)
        cut = self.faults.cut
        return {
            "text": "" if cut else " ".join(words),
            "finish_reason": "length" if cut or words[-1] != "." else "stop",
            "logprobs": {
                "tokens": words,
                "token_logprobs": [logprob] * len(words),
                "top_logprobs": [{w: logprob, "?" if w != "?" else "w1": RIVAL} for w in words],
            },
            "cached": cached,
            "count": len(words),
            "length": len(ids),
        }

    def lost(self, cached: int) -> bool:
        return (self.faults.lose_cached and cached > 0) or (
            self.faults.lose > 0 and self.draw.random() < self.faults.lose
        )

    def speculate(self, tokens: int) -> None:
        with self.lock:
            self.drafts += tokens
            for position, rate in enumerate(self.faults.acceptance):
                self.accepted[position] += rate * tokens

    def metrics(self) -> str:
        labels = 'engine="0",model_name="recall"'
        busy = len(self.prefilling | self.decoding) + self.faults.busy
        lines = [
            "# HELP x y",
            f"vllm:num_requests_running{{{labels}}} {busy}",
            f"vllm:num_requests_waiting{{{labels}}} 0",
            f"vllm:spec_decode_num_drafts_total{{{labels}}} {self.drafts}",
            f"vllm:corrupted_requests_total{{{labels}}} {self.faults.corrupted}",
        ]
        lines += [
            f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{labels},position="{p}"}} {n}'
            for p, n in enumerate(self.accepted)
        ]
        return "\n".join(lines) + "\n"


def tokens_of(prompt: str) -> list[int]:
    return [recall.BOS, *(WORDS.get(word, 0) for word in prompt.split())]


def prose_answer(prompt: str, lost: bool) -> list[str]:
    document, _, asked = prompt.rpartition("\nRepeated: ")
    at = document.find(asked)
    if lost or at < 0:
        return [" 11111", ".", "\n"]
    return [document[at + len(asked) :].split(".")[0], ".", "\n"]


def _handler(server: FakeServer) -> type[BaseHTTPRequestHandler]:  # noqa: C901 - one class
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def reply(self, body: object, status: int = 200) -> None:
            data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            self.send_response(status)
            if server.faults.encoding:
                self.send_header("Content-Encoding", server.faults.encoding)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            server.requests.append((self.path, {}))
            faults = server.faults
            model = {"id": faults.served, "max_model_len": faults.max_model_len}
            routes: dict[str, object] = {
                "/health": "",
                "/v1/models": {"data": [model]},
                "/version": {"version": faults.version},
                "/metrics": server.metrics(),
            }
            if faults.html:
                routes = dict.fromkeys(routes, PAGE)
            self.reply(routes.get(self.path, {}), 200 if self.path in routes else 404)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            server.requests.append((self.path, body))
            time.sleep(server.faults.hang_s + server.faults.hang_first_s)
            server.faults.hang_first_s = 0.0
            if server.faults.status != 200:
                self.reply({"error": {"message": "EngineDeadError"}}, server.faults.status)
            elif server.faults.html:
                self.reply(PAGE)
            elif self.path in server.faults.raw:
                self.reply(server.faults.raw[self.path])
            elif self.path == "/tokenize":
                self.reply({"tokens": tokens_of(body["prompt"])})
            elif self.path == "/v1/chat/completions":
                self.chat(body)
            elif body.get("stream"):
                self.stream(body)
            else:
                self.complete(body)

        def complete(self, body: dict[str, Any]) -> None:
            prompts = body["prompt"]
            if isinstance(prompts, str) or isinstance(prompts[0], int):
                prompts = [prompts]
            with ThreadPoolExecutor(len(prompts)) as pool:  # the prompts of one request share steps
                choices = list(
                    pool.map(lambda p: server.answer(p, body, next(server.numbers)), prompts)
                )
            usage: dict[str, Any] = {
                "prompt_tokens": sum(c.pop("length") for c in choices),
                "completion_tokens": sum(c.pop("count") for c in choices),
            }
            cached = sum(c.pop("cached") for c in choices)
            if server.faults.cache_details:
                usage["prompt_tokens_details"] = {"cached_tokens": cached}
            for index, choice in enumerate(choices):
                choice["index"] = index
            self.reply({"choices": choices, "usage": usage})

        def stream(self, body: dict[str, Any]) -> None:
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            me = next(server.numbers)
            if not isinstance(body["prompt"], str):
                server.prefill(body["prompt"], body.get("cache_salt") or "", me)
            with server.lock:
                server.decoding.add(me)
            try:
                wanted = range(0 if server.faults.empty else body["max_tokens"])
                for index in itertools.count() if server.faults.endless else wanted:
                    time.sleep(1 / server.faults.rate)
                    chunk = {"choices": [{"text": f" w{index}"}]}
                    self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
                    self.wfile.flush()
                server.speculate(body["max_tokens"])
                self.wfile.write(b"data: [DONE]\n\n")
            except OSError:
                pass  # the client has heard enough
            finally:
                with server.lock:
                    server.decoding.discard(me)
            self.close_connection = True

        def chat(self, body: dict[str, Any]) -> None:
            asked = body["messages"][-1]["content"]
            message: dict[str, Any] = {"content": "ok"}
            finish = "stop"
            for word, text in server.faults.chat.items():
                if word in asked:
                    message = {"content": text}
            if body.get("tools"):
                call = {"name": "get_weather", "arguments": server.faults.tool_arguments}
                message = {"content": "", "tool_calls": [{"function": call}]}
                finish = server.faults.tool_finish
            finish = "length" if server.faults.cut else finish
            usage = {"prompt_tokens": len(asked.split()), "completion_tokens": 4}
            self.reply({"choices": [{"message": message, "finish_reason": finish}], "usage": usage})

    return Handler
