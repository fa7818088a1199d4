"""Settings: their schema, what is wrong with them, and Hydra's command line.

Others take `schema.Config`, `validation.verify` and `command_line.role`.
"""
