"""Advantage actor-critic: one policy-gradient step on each batch of unrolls, of the weights that acted."""
