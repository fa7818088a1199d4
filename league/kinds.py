"""Every kind of player that Warren brings, entered in KINDS: import `kind_of` and the rest from here."""

from league.matchmaking import KINDS, Branch, Candidates, Choice, Decision, Kind, choose, distribution, kind_of
from league.players import LeagueExploiter, MainAgent, MainExploiter
from league.population import PbtElo, PbtPsro, Psro

__all__ = [
    "KINDS",
    "Branch",
    "Candidates",
    "Choice",
    "Decision",
    "Kind",
    "LeagueExploiter",
    "MainAgent",
    "MainExploiter",
    "PbtElo",
    "PbtPsro",
    "Psro",
    "choose",
    "distribution",
    "kind_of",
]
