"""Traces of runs on a pair of servers."""
