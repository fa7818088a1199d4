"""Speed of a replay, beside those of torchrl and Stable-Baselines3."""
