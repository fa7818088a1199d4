"""A whole league in one process: the debugging twin of the distributed one, and the quickest for small games.

    league = LocalLeague(config)
    while ...:
        league.round()                  # every player that learns: games, an update, and at the end of a period
                                        # a snapshot or a reset; then the evaluator has its share of the time
        league.progress = ...           # in [0, 1], where schedules follow the run's progress
    slots, mixture = league.mixture()   # the Nash mixture of all frozen players
    league.policy_of(slots[0])

Matchmaking, counting and learning periods are those of league.state.in_memory, sampling and learning those of the
distributed roles. Queues, leases and the pool are missing.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from copy import deepcopy

import numpy as np
import torch

import envs
from agents import Algorithm, build_algorithm, build_policy, devices
from agents.checkpoints import load_weights
from agents.policies import Policy
from agents.weight_averages import WeightAverages
from league.empirical_game.earned import Earned
from league.matchmaking import KINDS, Decision, played
from league.matchmaking.view import NEWEST, ModelRef
from league.rules.names import average_name
from league.rules.settings import Settings
from league.rules.win_rates import Slots
from league.state.in_memory import MemoryLeague
from league.state.league_state import Event
from warren.errors import ConfigurationError
from workers.config import initial_weights, teachers
from workers.config.league import TOGETHER, LeagueConfig
from workers.evaluation.by_settings import evaluator_of
from workers.evaluation.gains import Gains
from workers.evaluation.looks import look_here
from workers.leagues.local_host import LocalHost
from workers.leagues.trainee import DueUpdates, Trainee
from workers.leagues.turns import CREDIT, Turns, shares_of
from workers.rollout.games.match_scheduler import Matches
from workers.rollout.games.selfplay_sampler import MatchSampler


class LocalLeague:
    """Players, their games, their learning, the league's state (`league.state`), and an evaluator."""

    def __init__(
        self, config: LeagueConfig, on_event: Callable[[Event], None] | None = None, device: str = "cpu"
    ) -> None:
        """Let players learn on `device` and act on the CPU. Raises ConfigurationError for what cannot be used."""
        self.config, self._device = config, devices.resolve(device)
        self.league = MemoryLeague(Settings(**config.settings), config.seed, on_event)
        self.returns = self.league.state.empirical_game
        self.frozen: dict[str, Policy] = {}  # the models of frozen players
        self._copies: dict[str, tuple[tuple[int, int], Policy]] = {}  # learning players': (version, generation), model
        games = envs.make_two_player(config.env, config.evaluation_games, self._seed("evaluator"), **config.env_kwargs)
        self._spaces = games.single_observation_space, games.single_action_space
        self.opponents = len(games.teams) - 1  # number of a player's opponents in a game
        policies = {name: self._new_policy(name, 0) for name in config.players}
        if problems := list(initial_weights.misfits(config, policies)):
            raise ConfigurationError(problems)
        self.evaluator = evaluator_of(config, games, self.returns, self.policy_of, self._seed("evaluator actions"))
        self.gains = Gains(self.evaluator, config.cell_error, config.cell_most)
        self._progress: tuple[float, dict[str, int]] = 0.0, {}
        self._earned = Earned(shares_of(config), config.earned_share)
        self._turns = Turns(self._earned.shares, CREDIT * config.lanes * config.unroll_length)
        self._due = DueUpdates(config.updating)
        self._training_time = self._evaluation_time = self._looking_time = 0.0
        self._solved: tuple[int, int, np.ndarray] | None = None
        # A player that begins with another's model joins after it.
        order = sorted(config.players, key=lambda name: self._initial_model(name) is not None)
        self.trainees: dict[str, Trainee] = {}
        for name in order:
            self.trainees[name] = self._join(name)
        self.trainees = {name: self.trainees[name] for name in config.players}
        for trainee in self.trainees.values():  # once all have joined, so that each has opponents
            self._begin(trainee)

    # State.

    def policy_of(self, slot: int) -> Policy:
        """Return the policy of the player at `slot`."""
        name = self.league.state.roster.by_slot[slot].name
        if name in self._due:
            self._due.make()
        return self.frozen[name] if name in self.frozen else self.trainees[name].policy

    def opponent(self, name: str) -> Policy:
        """Return a policy that stays as it is: a frozen player's, or a copy of a learning one's newest weights."""
        if name in self.frozen:
            return self.frozen[name]
        if name in self._due:
            self._due.make()
        trainee = self.trainees[name]
        now = trainee.version, self.league.state.players[name].generation
        known = self._copies.get(name)
        if known is None or known[0] != now:
            known = self._copies[name] = now, trainee.policy.frozen_copy()
        return known[1]

    def mixture(self) -> tuple[Slots, np.ndarray]:
        """Return (slots of all frozen players (n,), their shares in the mixture on returns so far (2, n), per seat)."""
        slots = self.league.state.roster.historical
        key = (len(slots), self.returns.version)
        if self._solved is None or self._solved[:2] != key:
            self._solved = (*key, self.evaluator.mixture(slots, played(self.league.state.roster, slots)))
        return slots, self._solved[2]

    @property
    def progress(self) -> float:
        """The part of the run that is over, in [0, 1]: set by the caller of `round`."""
        return self._progress[0]

    @progress.setter
    def progress(self, part: float) -> None:
        self._progress = part, {name: trainee.steps for name, trainee in self.trainees.items()}

    def steps_of_run(self, name: str) -> float | None:
        """Return the steps that a player makes in the whole run at its mean pace so far; None while unknown."""
        part, steps = self._progress
        return steps[name] / part if part > 0.0 and steps[name] else None

    # Training.

    def round(self, most: int | None = None) -> None:
        """Make updates in proportion to the players' shares, `most` at most, then evaluate for its share of the time.

        The player with the smallest share makes one.
        """
        started, looked = time.perf_counter(), self._looking_time
        shares = self._shares()
        whole = round(sum(shares.values()) / min(shares.values()))
        for _ in range(whole if most is None else min(whole, most)):
            name = self._turns.next(list(self.trainees))
            before = self.trainees[name].steps
            self._play(self.trainees[name])
            self._turns.had(name, self.trainees[name].steps - before)
        self._due.make()
        self._training_time += time.perf_counter() - started - (self._looking_time - looked)
        self.evaluate(self._evaluation_budget - self._evaluation_time - self._looking_time)

    def _shares(self) -> dict[str, float]:
        """Return the players' shares of learning, of which a part may be earned."""
        slots = (roster := self.league.state.roster).historical
        parents = [roster.by_slot[slot].parent for slot in slots.tolist()]
        ours = played(roster, slots)
        if self.config.earned_share and len(slots) and self._earned.follow(slots, parents, self.returns, ours):
            self._turns.share(self._earned.shares)
        return self._earned.shares

    def learn(self, trainee: Trainee) -> dict[str, float]:
        """Play games for one update and make it; at the end of a period do what the player's kind decides.

        Returns the metrics of the update.
        """
        return (self._play(trainee) or self._due.make())[trainee.name]

    def _play(self, trainee: Trainee) -> dict[str, dict[str, float]]:
        """Play games for one update, which becomes due; make it if a period ends or updates are not made together.

        Returns the metrics, by player, of the updates that were made after the games.
        """
        if trainee.name in self._due:
            self._due.make()
        trajectory = trainee.matches.collect(self.config.lanes)
        progress = self.config.progress_in_period(trainee.steps, trainee.period_end)
        trainee.algorithm.adjust(self.league.hyperparameters(trainee.name, progress))
        if hasattr(trainee.algorithm, "take_progress"):
            trainee.algorithm.take_progress(self.progress)
        self._due.add(trainee, trajectory)
        trainee.steps += trajectory.num_steps
        ends = trainee.steps >= trainee.period_end
        made = self._due.make() if ends or self.config.updating != TOGETHER else {}
        if ends:
            self._end_period(trainee)
        return made

    def evaluate(self, seconds: float) -> None:
        """Play payoff cells, and in turn measure best responses, for about `seconds` or until all are known well."""
        started, state = time.perf_counter(), self.league.state
        slots, more = state.roster.historical, True
        while more and time.perf_counter() < started + seconds:
            more = any([self.evaluator.step(slots, played(state.roster, slots)), self.gains.step(state)])
        self._evaluation_time += time.perf_counter() - started

    @property
    def _evaluation_budget(self) -> float:
        share = self.config.evaluation_share
        return self._training_time * share / (1.0 - share)

    def look(self, trainee: Trainee) -> None:
        """Measure a player's return against the players that it is to beat, if its kind wants that."""
        started = time.perf_counter()
        if look_here(self.evaluator, self.league.state, trainee.name, trainee.policy, trainee.steps):
            self._looking_time += time.perf_counter() - started

    # Players join, are frozen, and are reset.

    def _join(self, name: str) -> Trainee:
        config, player = self.config, self.config.players[name]
        self.league.add_player(name, player.kind, player.config, rules=player.hyperparameters)
        games = envs.make_two_player(config.env, config.games, self._seed(f"{name} games"), **config.env_kwargs)
        policy = self._begun(name, 0)
        algorithm = self._new_algorithm(name, policy)
        sampler = MatchSampler(
            games,
            policy,
            self._seed(f"{name} actions"),
            config.unroll_length,
            config.tables,
            config.reward_scale,
            fields=algorithm.needs.fields,
            minimax=config.minimax_of(name),
        )
        trainee = Trainee(name, policy, algorithm, sampler, averages=WeightAverages(config.averages_of(name)))
        if KINDS[player.kind].begins_frozen:
            self.frozen[self.league.snapshot(name, 0).name] = trainee.policy.frozen_copy()
        return trainee

    def _begin(self, trainee: Trainee) -> None:
        self._open_period(trainee)
        host = LocalHost(self.league, trainee.name, self.opponents, self.opponent, self.config.series)
        trainee.matches = Matches(trainee.sampler, self.config.match_games, host)

    def _end_period(self, trainee: Trainee) -> Decision:
        name = trainee.name
        if self._looking_time < self._evaluation_budget / 2.0:  # the other half is for payoff cells
            self.look(trainee)
        self.league.progress(name, trainee.steps)
        newest = {other.name: ModelRef(other.name, other.version) for other in self.trainees.values()}
        run, snapshots = self.steps_of_run(name), self.config.snapshots_of(name, trainee.version)
        decision = self.league.close_period(name, trainee.steps, trainee.version, newest.get, run, snapshots)
        if decision.snapshot:
            self._freeze(trainee)
        if decision.reset or decision.exploit is not None:
            if decision.exploit:  # like the distributed league: schedules continue, Adam's moments do not
                source = self.trainees[decision.exploit].policy
            else:
                source = self._begun(name, self.league.state.players[name].generation)
                trainee.schedules_from = trainee.steps
            load_weights(trainee.policy, source.state_dict())
            trainee.averages = WeightAverages(self.config.averages_of(name))
            trainee.algorithm = self._new_algorithm(name, trainee.policy)
            trainee.algorithm.begin_at(trainee.steps - trainee.schedules_from)
            trainee.matches.restart()
        self._open_period(trainee)
        return decision

    def _open_period(self, trainee: Trainee) -> None:
        self.league.open_period(trainee.name)
        trainee.period_end = self.config.period_end(self.league.progress_of(trainee.name).closed_steps)

    def _freeze(self, trainee: Trainee) -> None:
        rates = {average_name(trainee.name, rate): rate for rate in trainee.averages.rates}
        for model in self.config.snapshots_of(trainee.name, trainee.version):
            self.frozen[str(model)] = policy = trainee.policy.frozen_copy()
            if model.player in rates:
                load_weights(policy, trainee.averages.of(rates[model.player], trainee.policy))

    def _begun(self, name: str, generation: int) -> Policy:
        """Return a policy with the weights that the player begins with, at first and after a reset."""
        policy, initial = self._new_policy(name, generation), self.config.players[name].initial
        model = self._initial_model(name)
        if model is not None and model.version == NEWEST and model.player in self.trainees:
            load_weights(policy, self.trainees[model.player].policy.state_dict())
        elif model is not None:
            if str(model) not in self.frozen:
                raise ConfigurationError(
                    f"{initial_weights.setting_of(name)}: there is no {model} when {name} begins; name one of "
                    f"{', '.join(self.frozen) or 'no frozen model'}, or a checkpoint"
                )
            load_weights(policy, self.frozen[str(model)].state_dict())
        elif initial is not None:
            initial_weights.load(initial, policy, name)
        return policy

    def _initial_model(self, name: str) -> ModelRef | None:
        return initial_weights.model_of(self.config.players[name].initial, self.config.players)

    def _new_policy(self, name: str, generation: int) -> Policy:
        return build_policy(self.config.network_of(name), *self._spaces, self._seed(f"{name} weights {generation}"))

    def _new_algorithm(self, name: str, policy: Policy) -> Algorithm:
        settings = self.config.algorithm_of(name)
        learning = policy if self._device == torch.device("cpu") else deepcopy(policy).to(self._device)
        algorithm = build_algorithm(settings["name"], settings, learning, self._seed(f"{name} order"), replay=False)
        if (teacher := teachers.name_of(settings)) and hasattr(algorithm, "take_teacher"):
            algorithm.take_teacher(teachers.load(teacher, learning, None)[0], teacher)
        return algorithm

    def _seed(self, purpose: str) -> int:
        """Return a seed for each purpose, derived from the league's."""
        return zlib.crc32(f"{self.config.seed}/{purpose}".encode()) % (1 << 31)
