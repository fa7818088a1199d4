"""Hydra's configuration: one primary file a role, one group a choice. workers/config.py holds the schema."""
