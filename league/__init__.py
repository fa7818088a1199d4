"""The league: its players and models in Redis, and the matchmaking between them."""
