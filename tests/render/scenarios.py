"""What runs inside the engine's environment: the wheel's own parser and its own KV arithmetic."""

# ruff: noqa: PLC0415 - scenarios import the engine where it is, not where pytest is

from __future__ import annotations

import sys
from types import SimpleNamespace


def parse(configs: dict[str, list[str]]) -> dict[str, object]:
    """What `vllm serve --config FILE` starts with, for many files in one process.

    Args:
        configs: Flags to look at (without dashes) by file.

    Returns:
        `values` by file and flag, `options` that the parser has, `variables` that the wheel reads.
    """
    from vllm import envs, platforms

    # The parser asks for a device; a machine without a GPU and the stock wheel have none.
    platforms.current_platform.device_type = "cuda"
    from vllm.entrypoints.cli import main
    from vllm.entrypoints.cli.serve import ServeSubcommand
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    started, parsers, serve_parsers = [], [], []
    init, parse_args = ServeSubcommand.subparser_init, FlexibleArgumentParser.parse_args

    def keep_serve(self, subparsers):
        serve_parsers.append(init(self, subparsers))
        return serve_parsers[-1]

    def keep(self, *args, **kwargs):
        parsers.append(self)
        return parse_args(self, *args, **kwargs)

    ServeSubcommand.cmd = staticmethod(started.append)
    ServeSubcommand.subparser_init = keep_serve
    FlexibleArgumentParser.parse_args = keep
    first, *others = configs
    sys.argv = ["vllm", "serve", "--config", first]
    main.main()  # the console script's own way, once; then its parser for the others
    arguments = {first: started[0]}
    for config in others:
        arguments[config] = parse_args(parsers[0], ["serve", "--config", config])
        ServeSubcommand().validate(arguments[config])
    options = {
        option: action.dest
        for action in serve_parsers[0]._actions
        for option in action.option_strings
        if option.startswith("--")
    }
    return {
        "values": {
            config: {flag: _value(arguments[config], options, flag) for flag in flags}
            for config, flags in configs.items()
        },
        "options": sorted(options),
        "variables": sorted(envs.environment_variables),
    }


def _value(arguments, options, flag):
    if f"--{flag}" not in options:
        return "no such option"
    value = getattr(arguments, options[f"--{flag}"])
    if hasattr(value, "cudagraph_mode"):
        return {"cudagraph_mode": value.cudagraph_mode.name}
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def kv_needed(draft: bool, cases: list[list[int]]) -> list[int]:
    """Bytes by the wheel's own start-up check, for each (context, tokens in flight)."""
    from vllm.v1.core import kv_cache_utils

    from overlay.deepseek import config, specs

    layers = specs([0, 0] + [4, 128] * 20 + [4] + [0, 0, 0] * draft)
    groups = kv_cache_utils.get_kv_cache_groups(config(), layers)
    found = []
    for context, in_flight in cases:
        settings = SimpleNamespace(
            model_config=SimpleNamespace(max_model_len=context),
            parallel_config=SimpleNamespace(
                decode_context_parallel_size=1, prefill_context_parallel_size=1
            ),
            max_in_flight_tokens=in_flight,
        )
        found.append(kv_cache_utils._max_memory_usage_bytes_from_groups(settings, groups))
    return found


def tokens_in_flight(async_scheduling: bool, v2: bool, step: int) -> int:
    """`VllmConfig.max_in_flight_tokens`, the wheel's own."""
    from vllm.config import VllmConfig

    config = SimpleNamespace(
        parallel_config=SimpleNamespace(pipeline_parallel_size=1),
        scheduler_config=SimpleNamespace(
            async_scheduling=async_scheduling, max_num_batched_tokens=step
        ),
        use_v2_model_runner=v2,
    )
    config.max_concurrent_batches = VllmConfig.max_concurrent_batches.fget(config)
    return VllmConfig.max_in_flight_tokens.fget(config)
