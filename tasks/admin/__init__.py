"""Inspecting a run and cleaning up after it: its services, their workers, its waiting messages, and removing all of it.

Other packages use `registry.Directory`, `discovery.discover` and `cleanup.remove_run`.
"""
