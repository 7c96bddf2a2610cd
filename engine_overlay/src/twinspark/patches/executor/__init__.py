"""Processes: failures, exit status."""
