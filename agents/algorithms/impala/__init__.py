"""IMPALA: one policy-gradient step on each batch of unrolls, of weights a little older, corrected by V-trace."""
