"""Trajectories on their way from an actor to its learner: pace, order, answers."""
