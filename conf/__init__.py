"""Hydra's configuration: one group a choice, all roles from warren.yaml. workers/config/schema.py holds the schema."""
