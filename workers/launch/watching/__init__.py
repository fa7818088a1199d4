"""Watches beside a run: its servers, its queues, its figures."""
