"""Matchmaking: every kind of player, each a pure function of a read-only view of the league.

Other packages use KINDS, `kind_of`, `choose`, `distribution` and what a new kind needs. No Redis and no clock in here.
"""

from league.matchmaking.alphastar import LeagueExploiter, MainAgent, MainExploiter
from league.matchmaking.anytime import AnytimePsro
from league.matchmaking.base import (
    KINDS,
    Branch,
    Candidates,
    Choice,
    Decision,
    Kind,
    Target,
    by_pfsp,
    choose,
    choose_all,
    distribution,
    in_seat,
    names_of,
    only,
    rivals_of,
    seat_of,
    weighted,
)
from league.matchmaking.best_response import BestResponse, responses
from league.matchmaking.configured import kind_of
from league.matchmaking.mixture_members import played
from league.matchmaking.pbt import PbtElo, PbtPsro
from league.matchmaking.psro import Psro
from league.matchmaking.sides import facing, side_of
from league.matchmaking.simple import Champion, Fixed, Pfsp, Random, SelfPlay, Softmax

__all__ = [
    "KINDS",
    "AnytimePsro",
    "BestResponse",
    "Branch",
    "Candidates",
    "Champion",
    "Choice",
    "Decision",
    "Fixed",
    "Kind",
    "LeagueExploiter",
    "MainAgent",
    "MainExploiter",
    "PbtElo",
    "PbtPsro",
    "Pfsp",
    "Psro",
    "Random",
    "SelfPlay",
    "Softmax",
    "Target",
    "by_pfsp",
    "choose",
    "choose_all",
    "distribution",
    "facing",
    "in_seat",
    "kind_of",
    "names_of",
    "only",
    "played",
    "responses",
    "rivals_of",
    "seat_of",
    "side_of",
    "weighted",
]
