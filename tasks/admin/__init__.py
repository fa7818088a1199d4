"""Inspecting a run and cleaning up after it: which services it has, who serves them, what waits, removing all of it.

Others take `registry.Directory`, `discovery.discover` and `cleanup.remove_run`.
"""
