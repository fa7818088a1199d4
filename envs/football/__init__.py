"""Google Research Football, for one player and for two."""
