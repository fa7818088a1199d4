"""Actors whose policy runs elsewhere: environment runners ask them, and they fill the trajectories."""
