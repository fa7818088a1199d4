"""Processes of a run on this machine: their start, their restarts, their failures, their signals."""
