"""The evaluator's role in a league: a full disk or a damaged model does not end it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from agents import checkpoints
from league.empirical_game.earned import Earned
from league.models.pool import Pool
from league.redis.shared_earnings import SharedEarnings
from league.redis.shared_looks import SharedLooks
from league.redis.shared_score import SharedScore
from league.redis.store import Store
from league.state.commands import ClosePeriod, OpenPeriod, TellProgress
from tasks.topology import Topology
from warren.errors import CheckpointError
from workers.config.league import LeagueConfig
from workers.config.schema import Config
from workers.evaluation import evaluator as evaluator_module
from workers.evaluation.evaluator import EvaluatorRole, seed_of
from workers.evaluation.scores import read_scores
from workers.runtime.league_policies import LeaguePolicies
from workers.runtime.session import source_name

LEAGUE = LeagueConfig.from_dict(
    {
        "env": "matrix:rps",
        "players": {"main": {"kind": "main_agent"}},
        "network": {"name": "mlp", "hidden_sizes": []},
        "references": ["uniform", "main", "main@0", "nobody"],
        "reference_games": 64,
        "evaluation_games": 64,
    }
)


@pytest.fixture
def role(redis_url: str, run_name: str, tmp_path: Path) -> Iterator[EvaluatorRole]:
    client, prefix = redis.Redis.from_url(redis_url), f"warren.{run_name}:"
    store, pool = Store(client, f"{prefix}league:"), Pool(client, prefix)
    store.create()
    store.add_player("main", "main_agent")
    pool.put("main", 0, 0, checkpoints.weights_to_bytes(LeaguePolicies(LEAGUE).new("main"), {"version": 0}))
    pool.freeze("main", 0)
    store.snapshot("main", 0)
    config = Config(folder=str(tmp_path), project="p", trial="t", run=run_name)
    (tmp_path / "p" / "t").mkdir(parents=True)
    fired = SimpleNamespace(fire=lambda name, payload: None)
    session: Any = SimpleNamespace(redis=client, pool=pool, events=fired, topology=Topology(run_name))
    yield EvaluatorRole(config, session, LEAGUE)
    for key in client.scan_iter(f"{prefix}*"):
        client.delete(key)


def test_seeds_of_a_thousand_evaluators_hardly_collide() -> None:
    # With 65,536 seeds, 1,000 processes would share about seven.
    seeds = [seed_of(source_name(number % 4)) for number in range(1000)]
    assert len(set(seeds)) >= 999
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert max(seeds) > 2**20, "seeds come from the whole range"


def test_references_are_uniform_play_and_frozen_players(role: EvaluatorRole) -> None:
    assert sorted(role.score().references) == ["main@0", "uniform"]


def test_a_score_names_kinds_in_the_mixture_and_is_kept_in_redis(role: EvaluatorRole) -> None:
    score = role.score()
    assert (score.frozen_by_kind, score.shares_by_kind) == ({"main_agent": 1}, {"main_agent": 1.0})
    assert score.alpha_rank == {"main@0": 1.0}
    left = SharedScore(role.session.redis, role.store.prefix).get()
    assert left is not None and left["mixture"] == score.mixture and left["shares_by_kind"] == {"main_agent": 1.0}


def test_an_exploiter_is_looked_at_every_period_with_its_newest_weights(role: EvaluatorRole) -> None:
    store, pool, looks = role.store, role.session.pool, SharedLooks(role.session.redis, role.store.prefix)
    store.add_player("hunter", "main_exploiter", {"freeze": "returns", "look_games": 64})
    store.add_player("other", "main_exploiter")
    every = LEAGUE.period_steps

    def arrive(version: int, steps: int, generation: int = 0, begun: int = 0) -> None:
        stamp = {"version": version, "step": steps, "generation": generation, "schedules_from": begun}
        for name in ("hunter", "other"):
            pool.put(
                name, version, steps, checkpoints.weights_to_bytes(LeaguePolicies(LEAGUE).new(name, version), stamp)
            )
            store.execute(OpenPeriod(name, "learner", 60_000))
            store.execute(TellProgress(name, 1, "learner", steps, 60_000))

    arrive(1, every - 1)
    assert not role._looking.look(store.view(), role._steps), "less than a period"
    arrive(2, every)
    before = role.returns.total_games
    assert role.step() and role.returns.total_games == before, "a look is a step"
    assert role.step() and role.returns.total_games > before, "the next step plays a cell"
    assert [(look.generation, look.steps, look.games) for look in looks.of("hunter")] == [(0, every, 64)]
    assert not role._looking.look(store.view(), role._steps), "the same weights"
    arrive(3, 2 * every + 5)
    assert role._looking.look(store.view(), role._steps)
    assert [look.steps for look in looks.of("hunter")] == [every, 2 * every + 5] and looks.of("other") == []
    view = store.view()
    assert [look.steps for look in view.looks(view.roster["hunter"])] == [every, 2 * every + 5]

    arrive(4, 4 * every)
    store.execute(ClosePeriod("hunter", 1, "learner", 4 * every, "hunter@4", 1, 1, "", "", "{}", "", "test"))
    assert not role._looking.look(store.view(), role._steps), "weights from before the reset"
    view = store.view()
    assert view.looks(view.roster["hunter"]) == []
    arrive(5, 4 * every, 1, 4 * every)
    assert not role._looking.look(store.view(), role._steps), "fresh weights"
    arrive(6, 5 * every, 1, 4 * every)
    assert role._looking.look(store.view(), role._steps)
    assert [(look.generation, look.steps) for look in looks.of("hunter")] == [(1, 5 * every)]


def test_earnings_are_stored_only_with_an_earned_share(role: EvaluatorRole) -> None:
    earnings = SharedEarnings(role.session.redis, role.store.prefix)
    role.step()
    assert earnings.get() == {}, "earned_share is 0"
    role.league = replace(LEAGUE, earned_share=0.5)
    role._earned = Earned({"main": 1.0, "hunter": 1.0}, 0.5)
    role.step()
    first = earnings.get()
    assert sum(first.values()) == pytest.approx(2.0) and first == role._earned.shares


def test_a_full_disk_does_not_end_the_evaluator(
    role: EvaluatorRole, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(evaluator_module, "AGAIN_AFTER", 0.01)
    tries: list[int] = []

    def full() -> None:
        tries.append(1)
        if len(tries) == 3:
            role.stopping.set()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(role, "step", full)
    monkeypatch.setattr(role, "draw", full)
    assert role.work("evaluator-0") == 0
    assert len(tries) == 4 and "No space left on device" in caplog.text


def test_a_score_that_cannot_be_written_is_sent_and_the_file_stays_whole(
    role: EvaluatorRole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    role.session.events = SimpleNamespace(fire=lambda name, payload: told.append(payload))  # type: ignore[assignment]
    role.score()
    folder, write = tmp_path / "p" / "t", Path.open

    def full(path: Path, mode: str = "r", **options: Any) -> Any:
        if mode != "a":
            return write(path, mode, **options)
        with write(path, "a", **options) as file:
            file.write('{"time": 1')  # the disk has room for no more
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", full)
        role.score()
    role.score()
    assert len(told) == 3 and len(read_scores(folder)) == 2


def test_a_model_that_cannot_be_loaded_does_not_end_the_evaluator(
    role: EvaluatorRole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluator_module, "AGAIN_AFTER", 0.01)
    tries: list[int] = []

    def step() -> bool:
        tries.append(1)
        if len(tries) == 3:
            role.stopping.set()
        raise CheckpointError("of another network")

    monkeypatch.setattr(role, "step", step)
    monkeypatch.setattr(role, "score", step)
    assert role.work("evaluator-0") == 0
    assert len(tries) == 4  # the last try is the final score


@pytest.mark.parametrize("name", ["score", "look"])
def test_games_go_on_after_a_score_or_a_look_fails(
    name: str, role: EvaluatorRole, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*given: Any) -> None:
        raise CheckpointError("of another network")

    monkeypatch.setattr(role if name == "score" else role._looking, name, fails)
    with pytest.raises(CheckpointError):
        role.step()
    before = role.returns.total_games
    assert role.step() and role.returns.total_games > before


def test_the_gain_of_a_response_is_in_the_score_and_is_kept(role: EvaluatorRole) -> None:
    store, pool = role.store, role.session.pool
    assert role.score().gains == {}
    store.add_player("hunter", "best_response", {"opponent": "main@0"})
    for version in (5, 9):
        stamp = {"version": version}
        weights = checkpoints.weights_to_bytes(LeaguePolicies(LEAGUE).new("hunter", version), stamp)
        pool.put("hunter", version, version, weights)
        pool.freeze("hunter", version)
    store.snapshot("hunter", 5)
    first = role.score().gains["hunter"]
    assert (first["response"], first["target"], first["games"]) == ("hunter@5", "main@0", 2 * LEAGUE.evaluation_games)
    while role._gains.step(role._view):
        pass
    last = role.score().gains["hunter"]
    assert first["upper"] - first["lower"] > 2 * LEAGUE.cell_error >= last["upper"] - last["lower"]
    assert read_scores(role.scores._path.parent)[-1]["gains"] == {"hunter": last}  # type: ignore[union-attr]
    again = EvaluatorRole(role.config, role.session, LEAGUE)
    assert again.score().gains == {"hunter": last}, "another evaluator plays no game of it again"
    store.snapshot("hunter", 9)
    assert again.score().gains["hunter"]["response"] == "hunter@9"


def test_a_step_measures_gains_in_turn_with_cells(role: EvaluatorRole) -> None:
    role.store.add_player("hunter", "best_response", {"opponent": "main@0"})
    role.session.pool.put(
        "hunter", 5, 5, checkpoints.weights_to_bytes(LeaguePolicies(LEAGUE).new("hunter", 5), {"version": 5})
    )
    role.session.pool.freeze("hunter", 5)
    role.store.snapshot("hunter", 5)
    role.score()
    before = role.returns.total_games, role._gains.of(role._view)["hunter"].games
    for _ in range(4):
        assert role.step()
    batch = LEAGUE.evaluation_games
    assert role._gains.of(role._view)["hunter"].games == before[1] + 2 * 2 * batch
    assert role.returns.total_games == before[0] + 2 * LEAGUE.evaluation_rounds * batch
