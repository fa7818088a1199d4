"""APPO, asynchronous PPO: several clipped passes over unrolls of weights a little older, corrected by V-trace."""
