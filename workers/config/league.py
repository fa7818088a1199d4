"""Settings of a league run, in one flat dataclass; conf/league/*.yaml holds sets of values for games."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field, fields
from math import inf
from typing import Any

from agents.configuration import parse
from league.empirical_game.mixture import BEST_RESPONSES, EXACT, OPPONENTS, SOURCES
from league.matchmaking import kind_of
from league.matchmaking.sides import SIDE
from league.matchmaking.view import ModelRef
from league.rules.hyperparameters import Hyperparameters
from league.rules.names import ALLOWED, NAME, average_name, averaged
from league.rules.settings import Settings
from warren.errors import ConfigurationError, unknown_name
from workers.config import groups
from workers.config.schema import fixed

TOGETHER = "together"
UPDATING = (TOGETHER, "separate")


@dataclass(frozen=True)
class PlayerConfig:
    """A learning player of a registered kind."""

    kind: str
    config: Mapping[str, Any] = field(default_factory=dict)  # options of the kind
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)  # by rule: league.rules.hyperparameters
    algorithm: Mapping[str, Any] = field(default_factory=dict)  # `name` and settings in place of the league's
    network: Mapping[str, Any] = field(default_factory=dict)  # `name` and settings in place of the league's
    averages: tuple[float, ...] = ()  # rates per update of moving averages of its weights, frozen with each snapshot
    averages_alone: bool = False  # true: freeze the averages in place of the snapshot, not beside it
    minimax: float = 0.0  # factor of the fall in its opponents' values of their positions, added to its rewards
    updates: float = 1.0  # its share of the decisions learned from, relative to the other players' `updates`
    initial: str | None = None  # weights to which a reset returns (workers.config.initial_weights); null: fresh ones
    learners: int | None = None  # learners that share its updates; null: as many as the run's `learners`


@dataclass(frozen=True)
class LeagueConfig:
    """A league: its players, how games are played, how results count, how the mixture is found."""

    env: str = fixed()  # the game: an id, or file.py:CLASS of your own (docs/your_game.md)
    players: Mapping[str, PlayerConfig] = fixed()  # name -> kind, config, rules and more (docs/league.md)
    env_kwargs: Mapping[str, Any] = fixed(default_factory=dict)  # arguments of the game's constructor
    network: Mapping[str, Any] = fixed(default_factory=dict)  # all players': `name` and settings (docs/networks.md)
    algorithm: Mapping[str, Any] = field(default_factory=dict)  # `name`, and the settings that all players share
    settings: Mapping[str, Any] = fixed(default_factory=dict)  # settings of results and Elo (league.rules.settings)
    seed: int = 1  # seed of all random draws: games, weights, actions

    # Playing
    games: int = 256  # games of each player at once
    tables: int = 4  # opponents of a player at a time
    unroll_length: int = 8  # decisions in a trajectory
    lanes: int = 256  # trajectories collected side by side for one update, of lanes * unroll_length decisions
    match_games: int = 256  # games after which a table asks for another opponent
    series: int = 1  # games that make one outcome of the payoff
    reward_scale: float = 1.0  # factor of the rewards that the algorithm gets

    # Learning
    period_steps: int = 20_000  # decisions between the ends of learning periods, at which snapshots are due
    updating: str = "separate"  # together: in one process, make the players' due updates at once
    earned_share: float = 0.0  # share of all learning given to players by what they bring to the mixture

    # Payoff cells between frozen players
    evaluation: str = fixed("games")  # games: each seat by itself; pairs: both seats on each deal; exact: computed
    evaluation_share: float = 0.25  # share of the wall time spent on evaluation
    evaluation_games: int = 1024  # slots of one batch
    evaluation_rounds: int = 2  # games a slot plays in a batch
    cell_least: int = 2048  # games of a cell before it counts
    cell_most: int = 200_000  # games of a cell at most
    cell_error: float = 0.05  # half width of the mean return's interval at which a cell is done
    cell_confidence: float = 0.95  # confidence of each cell's interval, over all times (empirical_game.confidence)
    max_return: float | None = None  # largest return of a game, in absolute value; null: as the game says
    mixture_temperature: float = 0.25  # in mean standard errors of the cells (empirical_game.quantal_response)
    mixture_least_temperature: float = 0.0  # in points of a game; above 0 players that are nearly equal are averaged
    # opponents that the mixture has to withstand: players, or the whole game's best_responses (evaluation: exact)
    mixture_against: str = "players"
    mixture_exploiters: bool = True  # false: the mixture only meets exploiters' snapshots, and does not play them

    # In services
    goal: float | None = None  # exploitability of the mixture at which the run ends
    lease: float = 60.0  # s after which a match or learning period that is not renewed is free again
    memory_bound: int = 4 << 30  # bytes of frozen models in Redis, at most half its maxmemory; the rest is on disk
    snapshot_every: float = 60.0  # s between snapshots of the league in the run folder
    history: int | None = 2_000_000  # events of the past that the run folder keeps, compressed; null: all
    references: tuple[str, ...] = ("uniform",)  # opponents that measure the main agent: uniform, frozen players' names
    reference_games: int = 1024  # games against each reference at each score
    evaluation_every: float = 15.0  # s between scores; with exploitability in small games

    # Records of matches, to be played again (workers/replays)
    replay_every: int = 0  # each actor records every N-th match; 1: all, 0: none
    replay_upsets: float | None = None  # also matches whose loser Elo expected to score this or more; null: none
    replay_evaluations: int = 0  # each evaluator records every N-th batch of games; 0: none
    replay_bytes: int = 256 << 20  # bytes of all records in the run folder; beyond that the oldest are deleted

    @property
    def records_matches(self) -> bool:
        """Return whether matches between players may be recorded."""
        return self.replay_every > 0 or self.replay_upsets is not None

    @property
    def records(self) -> bool:
        """Return whether matches or evaluation games may be recorded."""
        return self.records_matches or self.replay_evaluations > 0

    @property
    def has_roles(self) -> bool:
        """Return whether its players take one side each (league/matchmaking/sides.py)."""
        return any(player.config.get(SIDE) is not None for player in self.players.values())

    def slots(self, sharing: int) -> int:
        """Return the games per player that one of `sharing` processes steps at once, half of them in each seat."""
        tables = 2 * self.tables
        return max(tables, self.games // sharing // tables * tables)

    def __post_init__(self) -> None:
        problems = [*self._wrong_counts(), *self._wrong_numbers(), *self._wrong_players()]
        try:
            Settings(**self.settings)
        except (TypeError, ConfigurationError) as error:
            problems.append(f"settings of the league: {error}")
        if problems:
            raise ConfigurationError(problems)

    def _wrong_counts(self) -> Iterator[str]:
        for name in (
            "games", "tables", "unroll_length", "lanes", "match_games", "series", "period_steps", "evaluation_games",
            "evaluation_rounds", "cell_least", "cell_most", "memory_bound", "reference_games",
        ):  # fmt: skip
            if getattr(self, name) < 1:
                yield f"{name}={getattr(self, name)} of the league must be at least 1"
        for name in ("replay_every", "replay_evaluations"):
            if (number := getattr(self, name)) < 0:
                yield f"{name}={number} of the league must be at least 0, which records none"
        if self.replay_upsets is not None and not 0.5 < self.replay_upsets < 1:
            yield (
                f"replay_upsets={self.replay_upsets} of the league is the score that the loser was expected to reach; "
                "it must be above 0.5 and below 1, as 0.75 is, or null for none"
            )
        if self.replay_bytes < 1 << 20:
            yield f"replay_bytes={self.replay_bytes} of the league must be at least {1 << 20}, one MiB"
        if self.history is not None and self.history < 0:
            yield f"history={self.history} of the league must be at least 0 events, or null for all"
        if self.games % (2 * self.tables):
            yield (
                f"games={self.games} of the league must be a multiple of 2 * tables = {2 * self.tables}, so that both "
                "seats are played equally at each table"
            )

    def _wrong_numbers(self) -> Iterator[str]:
        yield from _unknown_choices(self)
        for name in ("evaluation_share", "earned_share"):
            if not 0 <= getattr(self, name) < 1:
                yield f"{name}={getattr(self, name)} of the league must be within 0 and below 1"
        if self.mixture_against == BEST_RESPONSES and self.evaluation != EXACT:
            yield (
                f"mixture_against={BEST_RESPONSES} of the league needs evaluation={EXACT}, which computes them; "
                f"evaluation is {self.evaluation}"
            )
        if self.earned_share > 0 and not self.evaluation_share > 0:
            yield f"earned_share={self.earned_share} of the league: give evaluation_share too, whose games measure it"
        for name in ("lease", "snapshot_every", "evaluation_every"):
            if not 0 < getattr(self, name) < inf:  # NaN is not
                yield f"{name}={getattr(self, name)} of the league must be more than 0 seconds, and finite"
        if not 0 < self.cell_confidence < 1:
            yield f"cell_confidence={self.cell_confidence} of the league must be within 0 and 1, as 0.95 is"
        if self.max_return is not None and not 0 < self.max_return < inf:
            yield f"max_return={self.max_return} of the league must be above 0 and finite, or null"
        for name in ("mixture_temperature", "cell_error", "reward_scale"):
            if not 0 < getattr(self, name) < inf:
                yield f"{name}={getattr(self, name)} of the league must be above 0, and finite"
        if not 0 <= (least := self.mixture_least_temperature) < inf:
            yield f"mixture_least_temperature={least} of the league must be at least 0, and finite"
        if self.goal is not None and not self.goal >= 0:
            yield f"goal={self.goal} of the league is not an exploitability; it must be at least 0, or null"

    def _wrong_players(self) -> Iterator[str]:
        if not self.players:
            yield "players of the league is empty; give at least one"
        for name, player in self.players.items():
            yield from _wrong_player(name, player, self.players)

    def algorithm_of(self, player: str) -> dict[str, Any]:
        """Return `name` and settings of the player's algorithm: the league's, overridden by the player's own.

        An algorithm of another name keeps the league's settings that it has too, since they are about the game.
        """
        own = self.players[player].algorithm if player in self.players else {}
        shared = {"name": "ppo", **self.algorithm}
        if (name := own.get("name", shared["name"])) != shared["name"]:
            known = groups.algorithms().get(name)
            has = () if known is None else [one.name for one in fields(known)]
            shared = {setting: value for setting, value in shared.items() if setting in has}
        return {**shared, **own}

    def network_of(self, player: str) -> dict[str, Any]:
        """Return `name` and settings of the network of a player, or of a model of it ("main@1200", or an average).

        They are the league's, overridden by the player's own; a network of another name takes none of the league's.
        """
        maker = player.partition("@")[0]
        maker = maker if maker in self.players else averaged(maker)
        own = self.players[maker].network if maker in self.players else {}
        shared = {"name": "mlp", **self.network}
        return dict(own) if own.get("name", shared["name"]) != shared["name"] else {**shared, **own}

    def averages_of(self, player: str) -> tuple[float, ...]:
        """Return the rates at which the player's weights are averaged; () for a player that joins later."""
        return self.players[player].averages if player in self.players else ()

    def snapshots_of(self, player: str, version: int) -> list[ModelRef]:
        """Return the models that a snapshot of the player at `version` freezes: its weights, and their averages."""
        averages = [ModelRef(average_name(player, rate), version) for rate in self.averages_of(player)]
        alone = bool(averages) and self.players[player].averages_alone
        return averages if alone else [ModelRef(player, version), *averages]

    def minimax_of(self, player: str) -> float:
        """Return the factor of the fall in its opponents' values that the player's rewards include."""
        return self.players[player].minimax if player in self.players else 0.0

    def share_of(self, player: str) -> float:
        """Return the player's share of the decisions learned from, by `updates`; 1 / (players + 1) if it joins later.

        With `earned_share` shares change, and a player's own decisions do not tell how far the run is: then infinite.
        """
        if self.earned_share:
            return inf
        if player not in self.players:
            return 1.0 / (len(self.players) + 1)
        return self.players[player].updates / sum(one.updates for one in self.players.values())

    def period_end(self, begun_at: int) -> int:
        """Return the decisions at which a learning period ends that began at `begun_at`, where the last one ended.

        The update that reaches them ends it. Counting from the last end, rather than on a grid, keeps updates that do
        not divide a period from cutting it short or passing over one.
        """
        return begun_at + self.period_steps

    def progress_in_period(self, steps: int, end: int) -> float:
        """Return the part in [0, 1] of a period that is over at `steps` decisions, if it ends at `end` decisions."""
        return 1.0 - min(1.0, max(0, end - steps) / self.period_steps)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> LeagueConfig:
        """Build the settings from a YAML file's contents. Raises ConfigurationError with all problems."""
        given = {name: value for name, value in given.items() if name != "defaults"}  # a file's list for Hydra
        if missing := [name for name in ("env", "players") if not given.get(name)]:
            raise ConfigurationError(
                f"{' and '.join(missing)} not given; choose a league to begin with, as in league=kuhn"
            )
        if not isinstance(given["players"], Mapping):
            raise ConfigurationError(f"players={given['players']!r} of the league must be a table of players by name")
        wrong: list[str] = []
        players = {}
        for name, player in given["players"].items():
            try:
                if not isinstance(player, Mapping) or "kind" not in player:
                    raise ConfigurationError(f"player {name!r} has no kind; give one, as in kind: main_agent")
                players[name] = parse(PlayerConfig, f"player {name!r}", player)
            except ConfigurationError as error:
                wrong += error.problems
        try:
            known = parse(cls, "the league", {**given, "players": players})
        except ConfigurationError as error:
            raise ConfigurationError([*wrong, *error.problems]) from None
        if wrong:
            raise ConfigurationError(wrong)
        return known


def _wrong_player(name: str, player: PlayerConfig, players: Mapping[str, PlayerConfig]) -> Iterator[str]:
    """Yield the problems of one of a league's `players`."""
    if not NAME.fullmatch(name):
        yield f"player {name!r}: its name must be {ALLOWED}"
    if not 0 <= player.minimax < inf:
        yield f"minimax={player.minimax} of player {name!r} must be at least 0, and finite"
    if not all(0 < rate <= 1 for rate in player.averages) or len({*player.averages}) < len(player.averages):
        yield (
            f"averages={list(player.averages)} of player {name!r} must be different rates, each above 0 and at "
            "most 1, as 0.02 is"
        )
    if player.averages_alone and not player.averages:
        yield f"averages_alone of player {name!r} needs averages; give rates, as in averages: [0.02]"
    if any(average_name(name, rate) in players for rate in player.averages):
        yield f"player {name!r}: another player has the name of its averages; give that one another name"
    if not 0 < player.updates < inf:
        yield f"updates={player.updates:g} of player {name!r} must be above 0, and finite"
    if player.initial == "":
        yield f"initial='' of player {name!r} must name a checkpoint, a player or PLAYER@VERSION, or be null"
    if player.initial == name:
        yield f"initial={name} of player {name!r} is the player itself; name another, or a checkpoint"
    if player.learners is not None and player.learners < 1:
        yield f"learners={player.learners} of player {name!r} must be at least 1, or null"
    try:
        named = kind_of(player.kind, player.config).named
        for one in named:
            if not _may_be(one, players):
                yield f"player {name!r}: {unknown_name('player', one, players)}"
        Hyperparameters(player.hyperparameters)
    except ConfigurationError as error:
        yield from (f"player {name!r}: {problem}" for problem in error.problems)


def _may_be(name: str, players: Container[str]) -> bool:
    """Return whether a league of `players` can hold a player of that name, which may be a snapshot's."""
    maker, snapshot, _ = name.partition("@")
    return (averaged(maker) if snapshot else maker) in players


def _unknown_choices(league: LeagueConfig) -> Iterator[str]:
    for name, known in (("evaluation", SOURCES), ("mixture_against", OPPONENTS), ("updating", UPDATING)):
        if (chosen := getattr(league, name)) not in known:
            yield unknown_name(f"{name} of the league", chosen, known)
