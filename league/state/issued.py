"""The match in the answer to an `Issue`."""

from __future__ import annotations

from league.state.records import Match, others_from
from warren.errors import LeagueError, PlayerError, PlayerUnavailable


def issued(match: str, home: str, holder: str, answer: list[str]) -> Match | None:
    """Return the match in the answer; None if the opponent is gone and another one may be chosen.

    Raises PlayerUnavailable while `home` is paused, PlayerError if it is gone, LeagueError for a match that has ended.
    """
    if answer[0] == "issued":
        home, away, branch, home_generation, away_generation, home_frozen, away_frozen, deadline, *others = answer[1:]
        return Match(
            *(match, home, away, branch, holder, int(home_generation), int(away_generation)),
            *(home_frozen == "1", away_frozen == "1", int(deadline)),
            *(others_from(*others) if others else ()),
        )
    if answer[0] == "paused":
        raise PlayerUnavailable(f"player {home!r} is paused; ask again once it is resumed")
    if answer[0] == "ended":
        raise LeagueError(f"match {match!r} has ended; ask for another with a new id")
    if answer[1] == home:
        raise PlayerError(f"player {home!r} does not exist or was removed; ask for matches of another")
    return None
