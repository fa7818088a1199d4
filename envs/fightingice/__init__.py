"""FightingICE, for one player and for two."""
