"""Games of two players that an actor steps: seats, decisions, matches, trajectories."""
