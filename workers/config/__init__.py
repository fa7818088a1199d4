"""Settings: their schema, their verification, and Hydra's command line.

Others take `schema.Config`, `validation.verify` and `command_line.role`.
"""
