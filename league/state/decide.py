"""The rules of a league: the consequences of a command, as a pure function of the league's state.

    events, answer = decide(state, command, now)
    for event in events:
        state.apply(event)

A league in memory does just this (in_memory.py). Redis runs the same rules as scripts, for speed and because several
workers share it; tests/league/state/test_one_rule.py checks that both give identical events and answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from league.rules.ratings import elo_update
from league.rules.settings import DROP
from league.rules.win_rates import pairs_of
from league.state import commands
from league.state.fields import to_json
from league.state.league_state import Event, LeagueState, Match
from league.state.records import match_fields, others_fields, player_fields


class Consequence(NamedTuple):
    """The events of a command, in order, and its answer, as text."""

    events: list[Event]
    answer: list[str]


def decide(state: LeagueState, command: commands.Command, now: int) -> Consequence:
    """Return the consequences of `command` for the league at `now`, in ms of Unix time; `state` is not changed."""
    rule: Callable[[LeagueState, Any, int], Consequence] = RULES[type(command)]
    return rule(state, command, now)


def exact(rating: float) -> str:
    """Return a float as text from which the same float can be read."""
    return f"{rating:.17g}"


def _no_events(*answer: str) -> Consequence:
    return Consequence([], list(answer))


def _event(event: str, **fields: Any) -> Event:
    return {"event": event, **{name: str(value) for name, value in fields.items()}}


# Players.


def _add(state: LeagueState, command: commands.Add, now: int) -> Consequence:
    if command.name in state.players:
        return _no_events("exists")
    event = _added(len(state.players), **vars(command), parent="", elo=state.settings.elo_initial)
    return Consequence([event], ["added", event["slot"]])


def _added(slot: int, elo: float, **fields: Any) -> Event:
    return _event("added", **fields, slot=slot, elo=exact(elo))


def _change(state: LeagueState, command: commands.Change, now: int) -> Consequence:
    if command.name not in state.players:
        return _no_events("unknown")
    fields, events = player_fields(state.players[command.name]), []
    for field, value in zip(command.changes[::2], command.changes[1::2], strict=True):
        if fields[field] != value:
            fields[field] = value
            events.append(_event("changed", name=command.name, field=field, value=value, by=command.by))
    return Consequence(events, ["changed"])


def _snapshot(state: LeagueState, command: commands.TakeSnapshot, now: int) -> Consequence:
    if command.player not in state.players:
        return _no_events("unknown")
    if state.players[command.player].frozen:
        return _no_events("frozen")
    taken = _frozen_copies(state, command.player, [command.model], command.by)
    return Consequence(taken, ["added" if taken else "exists"])


def _frozen_copies(state: LeagueState, name: str, models: Iterable[str], by: str) -> list[Event]:
    """Return the events of snapshots, which begin with their parent's rating; none for a model that has one."""
    player = state.players[name]
    events: list[Event] = []
    copied = {field: player_fields(player)[field] for field in ("kind", "config", "rules", "hyperparameters")}
    for model in dict.fromkeys(models):
        if model not in state.players:
            rest = {"name": model, "parent": name, "model": model, "initial": "", "frozen": 1, "by": by}
            slot = len(state.players) + len(events)
            events.append(_added(slot, elo=state.ratings[player.slot], **copied, **rest))
    return events


# Matches.


def _issue(state: LeagueState, command: commands.Issue, now: int) -> Consequence:
    if command.match in state.matches:  # the request came twice: give the same answer
        return _no_events(*_issued_answer(state.matches[command.match]))
    if command.match in state.ended:
        return _no_events("ended")
    found = []
    for name in (command.home, command.away, *command.others):
        player = state.players.get(name)
        if player is None or player.removed:
            return _no_events("gone", name)
        found.append(player)
    home, away, *others = found
    if home.paused:
        return _no_events("paused", command.home)
    match = Match(
        *(command.match, command.home, command.away, command.branch, command.holder),
        *(home.generation, away.generation, home.frozen, away.frozen, now + command.lease),
        others=command.others,
        other_generations=tuple(one.generation for one in others),
        other_frozen=tuple(one.frozen for one in others),
    )
    fields = {name: value for name, value in match_fields(match).items() if not name.endswith("_frozen")}
    return Consequence([_event("issued", match=match.id, **fields)], _issued_answer(match))


def _issued_answer(match: Match) -> list[str]:
    generations = str(match.home_generation), str(match.away_generation)
    frozen = str(int(match.home_frozen)), str(int(match.away_frozen))
    told = match.home, match.away, match.branch, *generations, *frozen, str(match.deadline)
    return ["issued", *told, *others_fields(match).values()]


def _count(state: LeagueState, command: commands.Count, now: int) -> Consequence:
    match = state.matches.get(command.match)
    if match is None:
        return _refused(state, command.match, command.by)
    reason = _dropped(state, match)
    if reason:
        return _aborted(command.match, reason, command.by)
    slots = [state.players[name].slot for name in match.names]
    try:
        pairs = pairs_of(command.outcomes, len(slots))
    except ValueError:
        return _aborted(command.match, "malformed", command.by)
    ratings = {slot: state.ratings[slot] for slot in slots}
    for one, other, outcomes in pairs:  # each pair with its part of the points at stake
        if slots[one] != slots[other]:
            k = state.settings.elo_k / (len(slots) - 1)
            before = ratings[slots[one]], ratings[slots[other]]
            ratings[slots[one]], ratings[slots[other]] = elo_update(*before, outcomes, k)
    home_elo, away_elo, *others = (exact(ratings[slot]) for slot in slots)
    elo = {"home_elo": home_elo, "away_elo": away_elo} | ({"other_elos": ",".join(others)} if others else {})
    ended = _event("ended", match=match.id, outcomes=command.outcomes, by=command.by, **elo, **{"as": "counted"})
    return Consequence([ended], ["counted"])


def _dropped(state: LeagueState, match: Match) -> str:
    """Return why a result does not count because a player changed since the match was issued; "" if it counts."""
    then = [(state.players[name], generation, frozen) for name, generation, frozen in match.standing]
    if any(player.removed for player, _, _ in then):
        return "removed"
    if state.settings.on_reset == DROP and any(player.generation != generation for player, generation, _ in then):
        return "reset"
    if state.settings.on_frozen == DROP and any(player.frozen != frozen for player, _, frozen in then):
        return "frozen"
    return ""


def _abort(state: LeagueState, command: commands.Abort, now: int) -> Consequence:
    if command.match not in state.matches:
        return _refused(state, command.match, command.by)
    return _aborted(command.match, command.reason, command.by)


def _aborted(match: str, reason: str, by: str) -> Consequence:
    return Consequence([_event("ended", match=match, reason=reason, by=by, **{"as": "aborted"})], ["aborted", reason])


def _refused(state: LeagueState, match: str, by: str) -> Consequence:
    """Refuse a result of a match that is not open: it has ended, or was never issued."""
    ended = state.ended.get(match)
    reason = "unknown" if ended is None else "duplicate" if ended == "counted" else "late"
    return Consequence([_event("refused", match=match, reason=reason, by=by)], ["refused", reason])


def _extend(state: LeagueState, command: commands.Extend, now: int) -> Consequence:
    if command.match not in state.matches:
        return _no_events("0")
    return Consequence([_event("extended", match=command.match, deadline=now + command.lease)], ["1"])


def _expire(state: LeagueState, command: commands.Expire, now: int) -> Consequence:
    due = sorted((match.deadline, match.id) for match in state.matches.values() if match.deadline <= now)
    freed = [_event("ended", match=match, **{"as": "expired"}) for _, match in due[: command.most]]
    return Consequence(freed, [str(len(freed))])


# Learning periods.


def _open_period(state: LeagueState, command: commands.OpenPeriod, now: int) -> Consequence:
    player = state.players.get(command.player)
    if player is None:
        return _no_events("unknown")
    for why in ("removed", "frozen", "paused"):
        if getattr(player, why):
            return _no_events(why)
    progress = state.progress[player.name]
    # Its own period again, or that of a learner which went silent: the same period goes on.
    if progress.is_open and progress.learner != command.learner and progress.deadline > now:
        return _no_events("busy", progress.learner)
    number = progress.period + (not progress.is_open)
    deadline = now + command.lease
    event = _event("period_opened", player=player.name, number=number, learner=command.learner, deadline=deadline)
    fields = player_fields(player)
    models = progress.start, fields["initial"], fields["rules"], fields["hyperparameters"]
    told = number, *models, progress.steps, player.generation, deadline, progress.closed_steps
    return Consequence([event], ["opened", *map(str, told)])


def _tell_progress(state: LeagueState, command: commands.TellProgress, now: int) -> Consequence:
    player = state.players.get(command.player)
    if player is None:
        return _no_events("unknown")
    for why in ("removed", "frozen"):
        if getattr(player, why):
            return _no_events(why)
    progress = state.progress[player.name]
    if not progress.is_open or (progress.period, progress.learner) != (command.number, command.learner):
        return _no_events("lost")
    steps, deadline = max(progress.steps, command.steps), now + command.lease
    event = _event("progressed", player=player.name, steps=steps, deadline=deadline)
    return Consequence([event], ["paused" if player.paused else "on"])


def _close_period(state: LeagueState, command: commands.ClosePeriod, now: int) -> Consequence:
    """Take a snapshot first, then reset, so that a reset player's last weights are in the league."""
    name, player = command.player, state.players.get(command.player)
    if player is None:
        return _no_events("unknown")
    progress = state.progress[name]
    if progress.period == command.number and not progress.is_open:
        happened = (
            progress.closed_as,
            str(int(progress.closed_snapshot)),
            progress.closed_source,
            progress.closed_reason,
        )
        return _no_events("again", progress.start, *happened)
    for why in ("removed", "frozen"):  # by hand, meanwhile: the period ends without effect
        if getattr(player, why):
            return _no_events(why)
    if (progress.period, progress.learner) != (command.number, command.learner):
        return _no_events("lost")
    source = state.players.get(command.source)
    how, start = "closed", command.model
    if command.reset:
        how, start = "reset", ""
    elif source is not None and not source.removed:
        how, start = "exploited", command.source_model
    taken_over = command.source if how == "exploited" else ""
    said = {"player": name, "reason": command.reason, "by": command.by}
    closed = {"number": command.number, "steps": max(progress.steps, command.steps), "model": command.model}
    closed |= {"as": how, "snapshot": command.snapshot, "source": taken_over}
    events = [_event("period_closed", **said, **closed)]
    if command.snapshot:
        events += _frozen_copies(state, name, command.snapshots, command.by)
    changed = {**said, "generation": player.generation + 1, "start": start}
    if how == "reset":
        events.append(_event("reset", **changed))
    elif how == "exploited":
        values = {"before": to_json(dict(player.hyperparameters)), "hyperparameters": command.hyperparameters}
        events.append(_event("exploited", **changed, **values, source=taken_over))
    return Consequence(events, [how, start, how, str(command.snapshot), taken_over, command.reason])


RULES: dict[type[commands.Command], Callable[[LeagueState, Any, int], Consequence]] = {
    commands.Add: _add,
    commands.Change: _change,
    commands.TakeSnapshot: _snapshot,
    commands.Issue: _issue,
    commands.Count: _count,
    commands.Abort: _abort,
    commands.Extend: _extend,
    commands.Expire: _expire,
    commands.OpenPeriod: _open_period,
    commands.TellProgress: _tell_progress,
    commands.ClosePeriod: _close_period,
}
