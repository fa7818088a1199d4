"""Environments of several agents that learn together: one game (team), and many games as one vector (vector)."""
