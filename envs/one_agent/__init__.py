"""Environments of one agent: adapters of the libraries that have them."""
