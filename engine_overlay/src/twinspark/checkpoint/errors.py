"""The two ways in which a checkpoint command ends other than well."""

from __future__ import annotations


class CheckpointError(Exception):
    """Checked and found wrong (exit status 1): the text names the file and what to do next."""


class CannotRunError(Exception):
    """Could not be checked or carried out at all (exit status 2): the text says what to do next."""
