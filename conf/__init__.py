"""Hydra's configuration: one primary file a role, one group a choice. workers/config/schema.py holds the schema."""
