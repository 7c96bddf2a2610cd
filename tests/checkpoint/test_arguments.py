"""Arguments that make no sense are refused as such, before anything is looked at."""

from __future__ import annotations

import pytest

from twinspark.checkpoint.__main__ import main

SERVE = ["serve", "/x", "--listen", "127.0.0.1", "--token-file", "-"]
PULL = ["pull", "/x", "--from", "127.0.0.1", "--token-file", "-"]
COPY = ["copy", "/x", "host:/x"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        *(
            ([*action, "--port", port], "--port")
            for action in (SERVE, PULL, COPY)
            for port in ("0", "-1", "65536", "x")
        ),
        *(
            ([*action, "--workers", count], "--workers")
            for action in (["verify", "/x"], ["manifest", "/x"], ["fetch", "/x"], PULL)
            for count in ("0", "-3", "two")
        ),
        *(
            ([*action, option, time], option)
            for action, option in ((SERVE, "--idle"), (PULL, "--stall"), (PULL, "--patience"))
            for time in ("0", "-3", "nan", "inf", "1e12", "soon")
        ),
        *(
            ([*action, "--expect-tree", digest], "--expect-tree")
            for action in (["verify", "/x"], PULL)
            for digest in ("", "xyz", "0" * 63, "0" * 65)
        ),
        (["serve", "/x", "--listen", ",", "--token-file", "-"], "--listen"),
        (["pull", "/x", "--from", ",", "--token-file", "-"], "--from"),
        ([*COPY, "--rails", " ,"], "--rails"),
        ([*PULL, "--streams", "0"], "--streams"),
        ([*COPY, "--streams", "0"], "--streams"),
        (["fetch", "/x", "--connections", "0"], "--connections"),
        (["inspect", "/x", "--expect", "bogus"], "--expect"),
        ([*COPY, "--ssh", ""], "--ssh"),
        ([*COPY, "--ssh", "ssh 'open"], "--ssh"),
        ([*COPY, "--remote-command", " "], "--remote-command"),
    ],
)
def test_argument__that_makes_no_sense_is_a_usage_error(
    words: list[str],
    complaint: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["twinspark checkpoint", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert f"error: argument {complaint}: " in capsys.readouterr().err
