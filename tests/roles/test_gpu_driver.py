"""Pins of the frozen set."""

from __future__ import annotations

from host.render import render

SET = [
    ["nvidia-modprobe", "580.173.02-1ubuntu1", "install", "installed"],
    ["linux-nvidia", "6.17", "", ""],
]


def test_preferences__pin_exactly_what_is_installed():
    text = render("etc/apt/preferences.d/twinspark-freeze.j2", __gpu_driver_set=SET)
    stanzas = [part.splitlines() for part in text.split("\n\n")[1:]]
    assert stanzas == [
        ["Package: nvidia-modprobe", "Pin: version 580.173.02-1ubuntu1", "Pin-Priority: 1001"],
        ["Package: linux-nvidia", "Pin: version 6.17", "Pin-Priority: 1001"],
    ]
