"""The learner of a league's player: its state after a crash or a reset, and the end of its work."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis
import torch
from celery import Celery

import envs
from agents import checkpoints
from league.matchmaking.view import NEWEST, ModelRef
from league.models.pool import Pool
from league.redis.shared_looks import SharedLooks
from league.redis.store import Store
from league.rules.plateau import Look
from league.state.periods import LearningPeriod, Outcome, Periods
from tasks.topology import Topology
from workers.config.league import LeagueConfig
from workers.config.schema import Config
from workers.evaluation import looks as looks_module
from workers.leagues import course as course_module
from workers.leagues import learner as learner_module
from workers.leagues.course import league_trainer
from workers.leagues.local import LocalLeague
from workers.rollout.games.selfplay_sampler import MatchSampler
from workers.runtime.league_policies import LeaguePolicies
from workers.runtime.lease import Lease

LEAGUE = {
    "env": "matrix:rps",
    "players": {"main": {"kind": "main_agent"}},
    "network": {"name": "mlp", "hidden_sizes": []},
    "algorithm": {"name": "ppo", "minibatch_size": 64},
}


class Client:
    """The league's services, called without a wire."""

    def __init__(self, store: Store) -> None:
        self.store, self.periods, self.opened = store, Periods(store), 0

    def open_period(self, player: str, lease: float) -> tuple[LearningPeriod, str]:
        self.opened += 1
        return self.periods.open(player, "learner", lease), self.store.player(player).kind

    def progress(self, period: LearningPeriod, steps: int, lease: float) -> str:
        return self.periods.progress(period, steps, lease)

    def close_period(
        self,
        period: LearningPeriod,
        steps: int,
        version: int,
        run: float | None = None,
        snapshots: Sequence[ModelRef] = (),
    ) -> Outcome:
        return self.periods.close(period, steps, version, run=run, snapshots=snapshots)

    def snapshot(self, player: str, version: int) -> str:
        return self.store.snapshot(player, version).name


class Run:
    """A league in Redis, and trainers of its player, made as by one process after another."""

    def __init__(self, client: redis.Redis, name: str, folder: Path) -> None:
        prefix = f"warren.{name}:"
        self.store = Store(client, f"{prefix}league:", seed=3)
        self.store.create()
        self.store.add_player("main", "main_agent")
        self.config = Config(folder=str(folder), project="p", trial="t", run=name, league=LEAGUE)
        self.session: Any = SimpleNamespace(
            config=self.config,
            app=Celery("learner"),
            topology=Topology(name, players=("main",)),
            redis=client,
            leases=client,
            lease=lambda work: Lease(client, prefix, work),
            pool=Pool(client, prefix),
            events=SimpleNamespace(fire=lambda name, payload, another_follows=False: None),
            declare=lambda: None,
        )
        self.client: Any = Client(self.store)

    def trainer(self) -> Any:
        league = LeagueConfig.from_dict(LEAGUE)
        return league_trainer(self.session, league, self.client, threading.Event(), on_finished=lambda: None)[0]


@pytest.fixture
def run(redis_url: str, run_name: str, tmp_path: Path) -> Iterator[Run]:
    client = redis.Redis.from_url(redis_url)
    yield Run(client, run_name, tmp_path)
    for key in client.scan_iter(f"warren.{run_name}:*"):
        client.delete(key)


def trained(run: Run) -> Any:
    """Return a trainer that has written a checkpoint of an optimizer with 500 steps."""
    trainer: Any = run.trainer()
    trainer.course.begin()
    trainer.algorithm.steps = 500
    trainer.progress.updates = trainer.progress.version = 3
    trainer.outlets.checkpoint()
    return trainer


def same(one: Any, other: Any) -> bool:
    theirs = other.state_dict()
    return all(torch.equal(tensor, theirs[name]) for name, tensor in one.state_dict().items())


def test_after_a_reset_and_a_crash_the_optimizer_is_new(run: Run) -> None:
    first = trained(run)
    first.course._start_from(None, generation=1, anew=True)
    first.outlets.publish()  # and is killed before the next checkpoint
    second: Any = run.trainer()
    assert (second.state.generation, second.progress.version) == (1, 4)
    assert same(first.state.policy, second.state.policy)
    assert second.algorithm.steps == 0
    assert second.algorithm.policy is second.state.policy


def test_after_a_crash_within_a_generation_the_optimizer_continues(run: Run) -> None:
    first = trained(run)
    at_checkpoint = {name: tensor.clone() for name, tensor in first.state.policy.state_dict().items()}
    with torch.no_grad():
        next(first.state.policy.parameters()).add_(1.0)
    first.progress.version = 4
    first.outlets.publish()  # and is killed before the next checkpoint
    second: Any = run.trainer()
    assert second.state.generation == 0
    assert second.progress.version == 5, "a version that actors have is not made twice"
    assert second.algorithm.steps == 500
    weights = second.state.policy.state_dict()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in at_checkpoint.items()), (
        "weights, optimizer and schedules must be of the same moment"
    )


RESETS = {"checkpoint_min_steps": 0, "checkpoint_max_steps": 0, "reset_probability": 1.0}


def pooled(run: Run, name: str) -> ModelRef:
    """Put a model with constant weights into the pool; return its reference."""
    policy, _ = run.trainer().state.build()
    with torch.no_grad():
        next(policy.parameters()).fill_(0.25)
    run.session.pool.put(name, 1, 7, checkpoints.weights_to_bytes(policy, {"player": name, "version": 1, "step": 7}))
    return ModelRef(name, 1)


def is_pooled(trainer: Any) -> bool:
    return bool((next(trainer.state.policy.parameters()) == 0.25).all())


@pytest.mark.parametrize("to_a_model", [False, True])
def test_schedules_begin_anew_at_a_reset_and_continue_at_an_exploit(run: Run, to_a_model: bool) -> None:
    trainer, model = trained(run), pooled(run, "other")
    run.store.change("main", config=RESETS, initial=model if to_a_model else None)
    trainer.progress.steps = 12_345
    trainer.course._start_from(model, generation=0, anew=False)
    assert trainer.algorithm.steps == 12_345
    assert not trainer.algorithm.descent.optimizer.state, "Adam's moments were of other weights"
    assert run.client.close_period(trainer.course.period, 12_345, 3).status == "reset"
    trainer.course.begin()
    assert (trainer.state.generation, trainer.algorithm.steps, is_pooled(trainer)) == (1, 0, to_a_model)
    trainer.progress.steps += 64
    trainer.course._start_from(model, generation=2, anew=False)
    assert trainer.algorithm.steps == 64, "an exploit goes on from the last reset"


def begin_as_other_is_pooled(run: Run, trainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin a period; the pool gets a model of `other` just before the third request."""
    monkeypatch.setattr(course_module, "OPEN_AGAIN", 0.01)
    opened = run.client.open_period

    def put_meanwhile(player: str, lease: float) -> Any:
        if run.client.opened == 2:
            pooled(run, "other")
        return opened(player, lease)

    monkeypatch.setattr(run.client, "open_period", put_meanwhile)
    trainer.course.begin()


def test_weights_of_another_network_are_refused_and_the_player_goes_on(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = trained(run)
    before = deepcopy(trainer.state.policy)
    wide = LeaguePolicies(LeagueConfig.from_dict(LEAGUE)).new("main", network={"hidden_sizes": [8]})
    stamp = {"player": "other", "version": 1, "step": 7, "network": {"hidden_sizes": [8]}}
    run.session.pool.put("other", 1, 7, checkpoints.weights_to_bytes(wide, stamp))
    trainer.course._start_from(ModelRef("other", 1), generation=1, anew=False)
    assert same(before, trainer.state.policy) and trainer.state.generation == 1
    assert trainer.algorithm.steps == 500 and trainer.progress.version == 4
    assert "player main keeps its weights in generation 1: the other@1 are of another network" in caplog.text


def test_a_player_that_begins_with_another_takes_its_newest_weights_at_each_reset(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.store.add_player("other", "self_play")
    run.store.change("main", config=RESETS, initial=ModelRef("other", NEWEST))
    trainer: Any = run.trainer()
    begin_as_other_is_pooled(run, trainer, monkeypatch)
    assert run.client.opened == 3 and is_pooled(trainer), "it waits until the other has weights"
    policy, _ = run.trainer().state.build()
    newer = checkpoints.weights_to_bytes(policy, {"player": "other", "version": 2, "step": 9})
    run.session.pool.put("other", 2, 9, newer)
    trainer.progress.steps = 4096
    assert run.client.close_period(trainer.course.period, 4096, 3).status == "reset"
    trainer.course.begin()
    assert same(trainer.state.policy, policy) and not is_pooled(trainer)
    assert (trainer.state.generation, trainer.algorithm.steps) == (1, 0)
    assert run.store.player("main").initial == ModelRef("other", NEWEST)


def test_weights_from_the_pool_continue_the_schedules_of_their_generation(run: Run) -> None:
    first = trained(run)
    first.progress.steps = 1_000
    first.course._start_from(None, generation=1, anew=True)
    first.progress.steps = 1_500
    first.outlets.publish()  # and is killed before the next checkpoint
    second: Any = run.trainer()
    assert (second.state.generation, second.progress.steps, second.algorithm.steps) == (1, 1_500, 500)


def test_a_player_waits_for_an_initial_model_that_is_still_to_come(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.store.change("main", initial=ModelRef("other", 1))
    trainer: Any = run.trainer()
    begin_as_other_is_pooled(run, trainer, monkeypatch)
    assert run.client.opened == 3
    assert is_pooled(trainer)


@pytest.mark.parametrize("kept", [True, False])
def test_a_learner_resumes_with_a_league_that_was_set_back(run: Run, kept: bool) -> None:
    before = trained(run)
    run.client.close_period(before.course.period, 400, 2)  # the league names main@2, which was not frozen
    if kept:
        run.session.pool.put("main", 3, 400, checkpoints.weights_to_bytes(before.state.policy, before.state.stamp()))
    else:
        run.session.pool.remove(ModelRef("main", 0))
    before.course._start_from(None, generation=1, anew=True)  # the league that is set back knows nothing of this
    before.outlets.checkpoint()
    again: Any = run.trainer()
    assert again.state.generation == 1
    again.course.begin()
    assert (again.state.generation, again.progress.version) == (0, 5)
    if kept:
        tensors, _ = checkpoints.weights_from_bytes(run.session.pool.get("main", 3).data)
        weights = again.state.policy.state_dict()
        assert all(torch.equal(tensor, weights[name]) for name, tensor in tensors.items())
    else:
        assert same(again.state.policy, before.state.policy)


def test_segments_from_before_a_reset_are_dropped_and_counted(run: Run) -> None:
    trainer, settled = trained(run), []
    run.session.ledger = SimpleNamespace(settle=lambda told, teller, number: settled.extend(told))
    trainer.course._start_from(None, generation=2, anew=True)
    games = envs.make_two_player("matrix:rps", 4, 1)
    trajectory = MatchSampler(games, trainer.state.policy, seed=1, unroll_length=4).collect(8)
    trajectory.version[:] = trainer.progress.version
    payload = {
        "source": "a",
        "steps": 32,
        "first_step_at": 1.0,
        "collected_at": 2.0,
        "trajectory": trajectory.to_dict(),
    }
    before = trainer.progress.updates
    calls = [{**payload, "number": number, "generation": number} for number in (1, 2)]
    assert trainer.learn([*calls, {**payload, "number": 3, "generation": "one of these"}]) == [None] * 3
    assert [(segment.number, kind, used) for segment, kind, used in settled] == [
        (1, "reset", 32), (3, "reset", 32), (2, "learned", 32),
    ]  # fmt: skip
    assert (trainer.progress.updates, trainer.progress.reset_steps) == (before + 1, 2 * 32)
    assert trainer.learn(calls[:1]) == [None]
    assert trainer.progress.updates == before + 1, "nothing is learned from it alone either"


EVERY_1000 = {"checkpoint_min_steps": 1000, "checkpoint_max_steps": 1000}


@pytest.mark.usefixtures("one_thread")
def test_periods_end_and_snapshots_are_taken_alike_in_one_process_and_in_many(run: Run) -> None:
    players = {"main": {"kind": "main_agent", "config": EVERY_1000}}
    playing = {"games": 64, "lanes": 96, "unroll_length": 4, "period_steps": 1000}
    league = LeagueConfig.from_dict({**LEAGUE, **playing, "players": players})
    events: list[Any] = []
    local = LocalLeague(league, events.append)
    updates = [local.trainees["main"].steps for _ in range(30) if local.learn(local.trainees["main"])]
    assert updates == list(range(384, 30 * 384 + 1, 384))

    run.store.change("main", config=EVERY_1000)
    trainer, course = league_trainer(run.session, league, run.client, threading.Event(), on_finished=lambda: None)
    course.begin()
    for version, steps in enumerate(updates, 1):
        trainer.progress.steps, trainer.progress.version = steps, version
        if course.period_is_over():
            course.end_period()

    def happened(events: list[Any], event: str, field: str) -> list[str]:
        return [each[field] for each in events if each["event"] == event]

    distributed = [event for _, event in run.store.events()]
    ends = happened(distributed, "period_closed", "steps")
    assert ends == happened(events, "period_closed", "steps") == [str(end) for end in range(1152, 11_521, 1152)]
    snapshots = [name for name in happened(distributed, "added", "name") if "@" in name]
    assert snapshots == [name for name in happened(events, "added", "name") if "@" in name]
    assert len(snapshots) == 1 + len(ends)


PLAYING = {"games": 64, "lanes": 96, "unroll_length": 4, "period_steps": 300}  # 384 decisions per update end a period


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("budget", ["total_steps", "seconds"])
def test_a_share_of_the_run_is_the_same_in_one_process_and_in_many(run: Run, budget: str) -> None:
    shares = {"checkpoint_min_steps": "10%", "checkpoint_max_steps": "10%"}
    league = LeagueConfig.from_dict(
        {**LEAGUE, **PLAYING, "players": {"main": {"kind": "main_agent", "config": shares}}}
    )
    local, updates = LocalLeague(league), 30
    main = local.trainees["main"]
    for update in range(updates):
        local.progress = update / updates
        local.learn(main)

    run.store.change("main", config=shares)
    run.config.total_steps, run.config.seconds = (main.steps, None) if budget == "total_steps" else (10**9, updates)
    trainer, course = league_trainer(run.session, league, run.client, threading.Event(), on_finished=lambda: None)
    course.begin()
    for version in range(1, updates + 1):
        trainer.progress.steps, trainer.progress.version = 384 * version, version
        trainer.progress.training_seconds = float(version)
        if course.period_is_over():
            course.end_period()
    expected = {"main@0", *(f"main@{version}" for version in range(3, updates + 1, 3))}
    assert {player.name for player in run.store.view().roster if player.frozen} == expected
    assert set(local.frozen) == expected


@pytest.mark.usefixtures("one_thread")
def test_the_same_returns_freeze_an_exploiter_alike_in_one_process_and_in_many(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_returns = {"freeze": "returns", "patience": 2, "checkpoint_min_steps": 384 * 3, "checkpoint_max_steps": 384 * 12}
    players = {"main": {"kind": "main_exploiter", "config": by_returns}, "target": {"kind": "main_agent"}}
    league = LeagueConfig.from_dict({**LEAGUE, **PLAYING, "players": players})
    # An early plateau; a rise up to checkpoint_max_steps; NaN; a late plateau.
    means = (
        [-0.5, 0.2, 0.1, 0.2] + [0.1 * step for step in range(12)] + [math.nan] * 12 + [-0.5, 0.0, 0.3, 0.2, 0.3, 9.0]
    )

    def seen(generation: int, steps: int) -> Look:
        mean = means[steps // 384 - 1]
        return Look(generation, steps, 2048, mean, mean - 0.1, mean + 0.1)

    monkeypatch.setattr(looks_module, "look", lambda _, policy, target, *stamp: seen(*stamp))
    local_events: list[Any] = []
    local = LocalLeague(league, local_events.append)
    local._training_time = 1e9
    for _ in means:
        local.learn(local.trainees["main"])

    run.store.change("main", kind="main_exploiter", config=by_returns)
    trainer, course = league_trainer(run.session, league, run.client, threading.Event(), on_finished=lambda: None)
    course.begin()
    for version in range(1, len(means) + 1):
        trainer.progress.steps, trainer.progress.version = 384 * version, trainer.progress.version + 1
        generation = run.store.player("main").generation
        SharedLooks(run.session.redis, run.store.prefix).add("main", seen(generation, 384 * version))
        if course.period_is_over():
            course.end_period()

    def frozen_at(events: list[Any]) -> list[int]:
        closed = [each for each in events if each["event"] == "period_closed" and each["snapshot"] in ("1", 1)]
        return [int(each["steps"]) // 384 for each in closed]

    assert frozen_at([event for _, event in run.store.events()]) == frozen_at(local_events) == [4, 16, 28, 33]


def test_averages_of_weights_go_on_exactly_after_a_crash_and_join_the_league(run: Run) -> None:
    run.session.ledger = SimpleNamespace(settle=lambda *call: None)
    player = {"kind": "main_agent", "averages": [0.3]}
    league = LeagueConfig.from_dict({**LEAGUE, "players": {"main": player}, "period_steps": 96})
    run.store.change("main", config={"checkpoint_min_steps": 0, "checkpoint_max_steps": 0})

    def begun() -> tuple[Any, Any]:
        return league_trainer(run.session, league, run.client, threading.Event(), on_finished=lambda: None)

    def update(trainer: Any, number: int) -> dict[str, torch.Tensor]:
        sampler = MatchSampler(envs.make_two_player("matrix:rps", 4, number), trainer.state.policy, number, 4)
        trajectory = sampler.collect(8)
        trajectory.version[:] = trainer.progress.version
        facts = {"source": "a", "steps": 32, "first_step_at": 1.0, "collected_at": 2.0, "generation": 0}
        assert trainer.learn([{**facts, "number": number, "trajectory": trajectory.to_dict()}]) == [None]
        return {name: tensor.clone() for name, tensor in trainer.state.policy.state_dict().items()}

    first, course = begun()
    course.begin()
    seen = [update(first, number) for number in (1, 2)]
    first.outlets.checkpoint()  # and crashes
    second, course = begun()
    course.begin()
    seen.append(update(second, 3))
    assert course.period.number == 2, "the third update ended the first period"
    taken = [player for player in run.store.view().roster if player.frozen][-2:]  # after main@0
    assert [(player.parent, player.is_average) for player in taken] == [("main", False), ("main", True)]
    average: Any = taken[1].model
    assert average.player == "main.average-0.3"
    tensors, stamp = checkpoints.weights_from_bytes(run.session.pool.get(*average).data)
    assert stamp["average"] == 0.3
    for name, tensor in tensors.items():
        mean = seen[0][name].lerp(seen[1][name], 5 / 6)
        assert torch.equal(tensor, mean.lerp(seen[2][name], max(0.3, 5 / 7)))


def test_a_learner_that_crashed_ends_its_period_at_the_same_step(run: Run) -> None:
    league = LeagueConfig.from_dict({**LEAGUE, "period_steps": 1000})
    first = league_trainer(run.session, league, run.client, threading.Event(), on_finished=lambda: None)[1]
    first.begin()
    run.client.close_period(first.period, 1152, 1)
    first.begin()
    run.client.progress(first.period, 1900, 60.0)
    second, course = league_trainer(run.session, league, run.client, threading.Event(), on_finished=lambda: None)
    course.begin()
    second.progress.steps = 2151
    assert not course.period_is_over()
    second.progress.steps = 2152
    assert course.period_is_over()


def test_invalid_hyperparameters_are_not_taken_and_learning_continues(run: Run) -> None:
    trainer = trained(run)
    run.store.change("main", rules={"learning_rate": 0.5}, hyperparameters={"learning_rate": 0.5})
    trainer.course.begin()
    trainer.course.before_update()
    run.store.change("main", rules={"learning_rate": -1.0}, hyperparameters={"learning_rate": -1.0})
    trainer.course.begin()
    trainer.course.before_update()
    assert trainer.algorithm.config.learning_rate == 0.5


def test_a_player_frozen_while_its_learner_waits_is_done(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(course_module, "OPEN_AGAIN", 0.01)
    trainer = trained(run)
    run.store.pause("main")
    opened, asked = run.client.open_period, []

    def freeze_meanwhile(player: str, lease: float) -> Any:
        asked.append(player)
        if len(asked) == 3:
            run.store.freeze("main", ModelRef("main", 0))
        return opened(player, lease)

    monkeypatch.setattr(run.client, "open_period", freeze_meanwhile)
    trainer.course.end_period()
    assert len(asked) == 3
    assert trainer.course.verdict() == "frozen"


@pytest.mark.parametrize("how", ["frozen", "removed"])
def test_a_learner_started_for_a_frozen_or_removed_player_exits_with_0(
    run: Run, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    if how == "frozen":
        run.store.freeze("main", ModelRef("main", 0))
    else:
        run.store.remove("main")
    monkeypatch.setattr(learner_module, "enter", lambda *_, **__: run.session)
    monkeypatch.setattr(learner_module, "LeagueClient", lambda *_: run.client)
    assert learner_module.run(run.config) == 0
    assert run.client.opened == 1


def test_a_learner_stopped_without_redis_writes_its_checkpoint_and_says_so(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, fired = trained(run), []
    trainer.progress.version = 9

    def away(*_: Any) -> None:
        raise redis.ConnectionError("Redis is away")

    monkeypatch.setattr(run.session.pool, "put", away)
    monkeypatch.setattr(run.session.events, "fire", lambda name, payload: fired.append(payload))
    trainer.close()
    assert fired[-1]["state"] == "stopped"
    newest = checkpoints.latest(trainer.state.recipe.folder / "checkpoints")
    assert newest is not None
    assert newest.name.startswith("00000009")
