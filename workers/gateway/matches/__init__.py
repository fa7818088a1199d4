"""Leagues of games that drive themselves: each session's game is one of a match that the league issued."""
