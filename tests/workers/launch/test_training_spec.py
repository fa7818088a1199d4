"""Tests of the processes that a configuration compiles to: the critical ones, the order of stops, and their hosts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import hydra
import pytest
from support.composed import configured

from warren.errors import ConfigurationError
from workers.config import hosts
from workers.config.roles import Done, Restart
from workers.config.run_names import name_run
from workers.config.schema import Config, from_hydra, from_yaml
from workers.config.validation import verify
from workers.launch.kinds.training_spec import added_learners, compiled


def compose(*overrides: str, folder: Path | None = None) -> Config:
    if folder is None:
        found = configured("train", *overrides)
    else:
        with hydra.initialize_config_dir(str(folder.resolve()), version_base="1.3"):
            found = from_hydra(hydra.compose("config", list(overrides)))
    name_run(found)
    return found


@pytest.mark.parametrize("name", ["1e3", "null", "1_000", "true", "0x1f", "main"])
def test_a_players_name_reaches_its_learner_as_it_is(tmp_path: Path, name: str) -> None:
    config = compose("experiment=rps")
    assert config.league is not None
    config.league["players"][name] = {"kind": "pfsp"}
    spec = compiled(config, tmp_path)
    (tmp_path / "config.yaml").write_text(spec.files["config.yaml"])
    assert name in (from_yaml(tmp_path / "config.yaml").league or {})["players"]
    learner = next(one for one in spec.processes if one.role == f"learner-{name}")
    overrides = [word for word in learner.line(0)[1:] if "=" in word and "/" not in word.partition("=")[0]]
    assert compose(*overrides, folder=tmp_path).player == name
    assert learner.name(0) == f"learner-{name}"


def test_a_flower_an_evaluator_or_an_added_players_learner_never_ends_a_run(tmp_path: Path) -> None:
    config = compose("experiment=rps", "flower_port=5555")
    restarts = {spec.role: spec.restart for spec in compiled(config, tmp_path).processes}
    assert restarts["flower"] is restarts["evaluator"] is Restart.optional
    assert restarts["actor"] is restarts["league"] is restarts["learner-main"] is Restart.critical
    assert [spec.restart for spec in added_learners(config, tmp_path, "late")] == [Restart.optional]


@pytest.mark.parametrize(
    ("setting", "forked"), [("", True), ("fork=false", False), ("device=auto", False), ("actor_device=cuda", False)]
)
def test_processes_are_forked_unless_one_may_use_a_gpu(tmp_path: Path, setting: str, forked: bool) -> None:
    spec = compiled(compose(*filter(None, [setting, "flower_port=5555"])), tmp_path)
    assert {one.role: one.forked for one in spec.processes} == {"learner": forked, "actor": forked, "flower": False}


def test_the_learner_ends_a_run_and_a_players_learner_only_its_own_work(tmp_path: Path) -> None:
    plain = {spec.role: spec.done for spec in compiled(compose(), tmp_path).processes}
    assert plain == {"learner": Done.run, "actor": Done.restart}
    league = {spec.role: spec.done for spec in compiled(compose("experiment=rps"), tmp_path).processes}
    assert league["learner-main"] is Done.once


def test_the_league_and_its_evaluators_stop_after_their_callers(tmp_path: Path) -> None:
    orders = {spec.role: spec.stop_order for spec in compiled(compose("experiment=rps"), tmp_path).processes}
    assert orders["league"] == orders["evaluator"] == 1
    assert orders["actor"] == orders["learner-main"] == 0


def test_a_process_has_the_grace_that_is_configured(tmp_path: Path) -> None:
    assert {spec.grace for spec in compiled(compose("grace=40"), tmp_path).processes} == {40.0}
    with pytest.raises(ConfigurationError, match="grace: 0"):
        verify(compose("grace=0"), "train")


HOSTS = "++hosts={master: {actors: 1, evaluators: 1}, box-2: {actors: 2, evaluators: 1}}"


def test_hosts_start_their_shares_with_consecutive_ranks(tmp_path: Path) -> None:
    config = compose("experiment=rps", HOSTS, "run=shared")
    config = replace(config, **hosts.given_totals(config))
    assert (config.actors, config.evaluators, config.league_workers) == (3, 2, 1)
    led = compiled(config, tmp_path)
    ranks = {spec.role: spec.ranks for spec in led.processes}
    assert (ranks["actor"], ranks["evaluator"], ranks["league"]) == (range(1), range(1), range(1))
    assert (led.leads, led.host, led.hosts) == (True, "master", ("master", "box-2"))
    joined = compiled(replace(config, host="box-2"), tmp_path)
    assert {spec.role: spec.ranks for spec in joined.processes} == {"actor": range(1, 3), "evaluator": range(1, 2)}
    assert not joined.leads and joined.servers.mode == "external"


def test_a_served_run_has_env_runners_that_other_hosts_may_start(tmp_path: Path) -> None:
    given = "++hosts={master: {actors: 1}, box-2: {env_runners: 3}}"
    assert "env" not in {spec.role for spec in compiled(compose(), tmp_path).processes}
    assert [*hosts.problems(compose(given))] and not [*hosts.problems(compose(given, "sampling=served"))]
    config = compose(given, "sampling=served", "run=shared")
    config = replace(config, **hosts.given_totals(config), host="box-2")
    (env,) = compiled(config, tmp_path).processes
    assert (env.role, env.ranks, env.setting) == ("env", range(3), "env_runners")
    assert env.line(1)[1:3] == ["-m", "workers.env"] and env.line(1)[-1] == "env_runner_id=1"
    assert config.segments_per_update == 3


def test_a_player_may_have_a_number_of_learners_of_its_own(tmp_path: Path) -> None:
    config = compose("experiment=rps", "+league.players.main.learners=3", "actors=6")
    ranks = [(spec.role, list(spec.ranks)) for spec in compiled(config, tmp_path).processes if "learner" in spec.role]
    assert ranks == [
        ("learner-main", [0]), ("learner-main", [1, 2]), ("learner-main_exploiter", [0]),
        ("learner-league_exploiter_0", [0]), ("learner-league_exploiter_1", [0]),
    ]  # fmt: skip
    assert [replace(config, player=name).segments_per_share for name in ("main", "main_exploiter")] == [2, 6]
    fewer = compose("experiment=rps", "+league.players.main.learners=1", "learners=2")
    counts = [config.learners_of(name) for name in ("main", "main_exploiter")]
    assert counts == [3, 1] and [fewer.learners_of(name) for name in ("main", "main_exploiter")] == [1, 2]


def test_a_served_league_has_env_runners_too(tmp_path: Path) -> None:
    given = ("experiment=rps", "++hosts={master: {actors: 1}, box-2: {env_runners: 3, evaluators: 1}}", "run=shared")
    assert [*hosts.problems(compose(*given))] and not [*hosts.problems(compose(*given, "sampling=served"))]
    config = compose(*given, "sampling=served")
    joined = compiled(replace(config, **hosts.given_totals(config), host="box-2"), tmp_path)
    assert {spec.role: spec.ranks for spec in joined.processes} == {"env": range(3), "evaluator": range(1)}
    alone = compiled(compose("experiment=rps", "sampling=served"), tmp_path)
    assert {spec.role: spec.num for spec in alone.processes if spec.setting == "env_runners"} == {"env": 2}


def test_learners_are_on_the_hosts_that_name_them_and_the_first_is_the_leaders(tmp_path: Path) -> None:
    given = "++hosts={master: {actors: 2, learners: 2}, box-2: {actors: 1, learners: 1}, box-3: {}}"
    config = compose(given, "run=shared")
    config = replace(config, **hosts.given_totals(config))
    assert (config.learners, config.actors) == (3, 3)
    names = {
        host: [
            spec.name(rank) for spec in compiled(replace(config, host=host), tmp_path).processes for rank in spec.ranks
        ]
        for host in ("master", "box-2", "box-3")
    }
    assert names == {
        "master": ["learner", "learner-1", "actor-0", "actor-1"], "box-2": ["learner-2", "actor-2"], "box-3": [],
    }  # fmt: skip
    league = compose(
        "experiment=rps", "++hosts={master: {learners: 1}, box-2: {learners: 1}}", "run=shared", "host=box-2"
    )
    league = replace(league, **hosts.given_totals(league))
    started = [spec.name(rank) for spec in compiled(league, tmp_path).processes for rank in spec.ranks]
    assert started == [f"learner-{player}-1" for player in (league.league or {})["players"]]


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("++hosts={master: {}, box-2: {actor: 1}}", "hosts.box-2: count 'actor' does not exist; did you mean actors?"),
        ("++hosts={master: {}, box-2: {evaluators: 1}}", "hosts.box-2: count 'evaluators' does not exist"),
        ("++hosts={master: {}, box-2: {actors: many}}", "hosts.box-2.actors: 'many' is not a number of processes"),
        ("++hosts={master: {}, box-2: 3}", "hosts.box-2: 3 is not a table"),
        (
            "++hosts={master: {}, box-2: {learners: 1}}",
            "hosts.master.learners: none; the first learner is the leader's",
        ),
    ],
)
def test_invalid_hosts_are_refused(override: str, expected: str) -> None:
    assert any(expected in problem for problem in hosts.problems(compose(override)))
