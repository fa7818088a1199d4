"""Runs that a pair of servers has traces of."""
