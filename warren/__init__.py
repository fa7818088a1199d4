"""Modules that every package may use: errors, registry, user code, Redis clients, files."""
