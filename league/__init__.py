"""Who plays whom: the model pool in Redis and, beside it, the league's matchmaking."""
