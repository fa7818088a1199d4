"""Settings without effect on the chosen kind of run are refused; settings of the other kinds are left alone."""

from __future__ import annotations

from dataclasses import fields
from fnmatch import fnmatchcase

import pytest
from support.composed import configured

from workers.config import applicable, groups
from workers.config.imitation import ImitationConfig
from workers.config.league_choices import with_choices
from workers.config.overrides import in_full
from workers.config.replay_settings import ReplayConfig
from workers.config.schema import (
    Config,
    EnvConfig,
    EvaluationConfig,
    GatewayConfig,
    Sampling,
)


def composed(*overrides: str) -> tuple[Config, list[str]]:
    given = [in_full(override) for override in overrides]
    return configured("train", *given), given


def problems(*overrides: str, role: str = "train") -> list[str]:
    config, given = composed(*overrides)
    choice = next((one.removeprefix("algorithm=") for one in given if one.startswith("algorithm=")), "ppo")
    return list(applicable.problems(with_choices(config, choice, given), role, given))


# Settings that every run reads. A new setting belongs here or in a rule; of a table that only some runs read, such as
# `env`, the rules name the table itself.
ALWAYS = {
    "project", "trial", "folder", "resume", "run", "seed", "sampling", "actors", "total_steps", "seconds", "learners",
    "learner_threads", "device", "precision", "compile", "perceptrons", "restarts", "fork", "grace", "round_timeout",
    "checkpoint_every", "checkpoints_kept", "flower_port", "task_events", "event_rate", "log_level", "log_format",
    "metrics", "trackers", "hosts", "host",
    "league", "broker", "network", "algorithm",
}  # fmt: skip


RULES = [rule for rule in applicable.RULES if rule.settings != applicable.NOT_READ]  # all but that of workers.imitate


def test_every_setting_is_always_read_or_stands_in_the_rules() -> None:
    listed = {pattern for rule in RULES for pattern in rule.settings}
    assert {one.name for one in fields(Config)} - ALWAYS == {one for one in listed if "." not in one}


def test_rules_name_only_settings_that_exist() -> None:
    tables = {"env": EnvConfig, "evaluation": EvaluationConfig, "gateway": GatewayConfig, "replay": ReplayConfig}
    tables["league"] = groups.league()
    tables["imitation"] = ImitationConfig
    tables |= {"network": groups.networks()["mlp"], "algorithm": groups.algorithms()["ppo"]}
    for pattern in (pattern for rule in RULES for pattern in rule.settings if "." in pattern):
        table, name = pattern.split(".")[:2]
        assert any(fnmatchcase(one.name, name) for one in fields(tables[table])), pattern


GAMECORE = ("env.id=gamecore:game.py:Game", "sampling=streaming")
SAMPLINGS = [f"sampling={one.value}" for one in Sampling]
GAMECORE_LEAGUE = ("league=nim_gamecore", "sampling=streaming")
MODES = [*((one,) for one in SAMPLINGS), *((one, "league=kuhn") for one in SAMPLINGS), GAMECORE, GAMECORE_LEAGUE]


@pytest.mark.parametrize("mode", MODES, ids=" ".join)
def test_a_setting_that_a_mode_does_not_read_is_refused_in_one_line(mode: tuple[str, ...]) -> None:
    config, given = composed(*mode)
    for rule in applicable.RULES:
        for name in (name for name in rule.settings if "*" not in name and not rule.reads(config, "train")):
            (problem,) = applicable.problems(config, "train", [*given, f"{name}=VALUE"])
            assert problem.startswith(f"{name}: VALUE is not read ") and problem.endswith("leave it out")
            assert "\n" not in problem and "{" not in problem.replace("{NAME: COEFFICIENT}", "")


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        (["restore=/nope"], "restore: /nope is not read without a league; add league=NAME, or leave it out"),
        (["evaluators=2"], "add league=NAME"),
        (
            ["env_runners=4"],
            "env_runners: 4 is not read with sampling=gathered, which has no env runners; add sa",
        ),
        (["served_memory=foo"], "add sampling=served"),
        (["compression=fp16"], "compression: fp16 is not read by one learner alone; add learners=2, or leave it out"),
        (["learners=2", "compression=fp16", "top_k=0.1"], "top_k: 0.1 is not read without compression=topk"),
        ([*GAMECORE_LEAGUE, "league.games=512"], "league.games: 512 is not read by gateways, to which as many games"),
        (["middleware=[timed.py:Timed]"], "add sampling=served or league=NAME"),
        (["gateway.port=-5"], "env.id=gamecore:FILE:CLASS"),
        (["max_staleness=3"], "max_staleness: 3 is not read with sampling=gathered, whose data are of the newest weig"),
        (["publish_every=3"], "add sampling=streaming"),
        (["flower_address=0.0.0.0"], "add flower_port=5555"),
        (["env.channel_values=true"], "add +env.reward_channels={NAME: COEFFICIENT}"),
        (["algorithm.anneal_to=0.1"], "add algorithm.anneal_steps=STEPS"),
        (["algorithm.teacher_coefficient=2"], "algorithm.teacher_coefficient: 2 is not read without a teacher"),
        (["network.observation_clip=5"], "add network.normalize_observations=true"),
        (["actor_id=3"], "actor_id: 3 is not read here, but by workers.actor and workers.gateway; leave it out"),
        (["player=main"], "player: main is not read by a launcher, which starts learners of all players; leave it out"),
        (["league=kuhn", "actor_device=cuda"], "actor_device: cuda is not read in a league with sampling=gathered"),
        (["league=kuhn", "deterministic=true"], "deterministic: true is not read in a league, whose next match dep"),
        (["league=kuhn", "league.updating=together"], "give it to a LocalLeague (docs/league.md), or leave it out"),
        (["league=kuhn", "env.id=Acrobot-v1"], "env.id: Acrobot-v1 is not read in a league; give league.env, or leave"),
        (["league=kuhn", "env=acrobot"], "env: acrobot is not read in a league; give league.env, with"),
        (["league=kuhn", "env.kwargs.x=1"], "league.env_kwargs"),
        (["league=kuhn", "env.num_envs=8"], "league.games"),
        (["league=kuhn", "env.reward_scale=2"], "league.reward_scale"),
        (["league=kuhn", "unroll_length=4"], "league.unroll_length"),
        (["league=kuhn", "league.seed=7"], "seed=N"),
        (["league=kuhn", "league.replay_bytes=1048576"], "add league.replay_every=N"),
        (["league=kuhn", "algorithm.teacher_anneal_steps=9"], "add algorithm.teacher=FOLDER"),
    ],
)
def test_setting_without_effect_is_refused_with_its_value_and_the_remedy(overrides: list[str], problem: str) -> None:
    (found,) = problems(*overrides)
    name, _, value = overrides[-1].partition("=")
    assert found.startswith(f"{name}: {value} is not read ") and problem in found


@pytest.mark.parametrize(
    "overrides",
    [
        ["league=kuhn", "restore=x", "evaluators=2", "league_workers=2", "seconds=60", "max_staleness=2"],
        [
            "league=kuhn",
            "algorithm.anneal_steps=9",
            "algorithm.anneal_to=0.2",
            "league.replay_every=5",
            "league.replay_bytes=1048576",
        ],
        ["league=kuhn", "sampling=served", "actor_device=cpu", "env_runners=2"],
        ["sampling=served", "env_runners=4", "served_memory=travelling", "publish_every=1", "batch_segments=2"],
        ["learners=2", "compression=topk", "top_k=0.1", "allreduce=torch", "on_rank_loss=continue"],
        [*GAMECORE, "gateway.port=1", "actor_device=cpu"],
        ["env=acrobot", "env.num_envs=8", "unroll_length=16", "seconds=60", "seed=3", "deterministic=true"],
        [
            "algorithm.anneal_steps=9",
            "algorithm.anneal_to=0.1",
            "algorithm.teacher=x",
            "algorithm.teacher_heads={a: 1}",
        ],
        ["network.normalize_observations=true", "network.observation_clip=5", "actors=3", "batch_segments=3"],
        ["algorithm=own", "+algorithm.anneal_to=0.5", "network=own", "+network.observation_clip=5"],
        ["experiment=kuhn", "actors=4"],
    ],
)
def test_setting_of_the_chosen_kind_of_run_is_taken(overrides: list[str]) -> None:
    assert problems(*overrides) == []


@pytest.mark.parametrize(
    ("role", "taken", "refused"),
    [("actor", "actor_id", "learner_id"), ("gateway", "actor_id", "env_runner_id"), ("learner", "player", "actor_id")],
)
def test_a_role_takes_only_its_own_id(role: str, taken: str, refused: str) -> None:
    assert problems(f"{taken}=1", role=role) == []
    assert [one.partition(":")[0] for one in problems(f"{taken}=1", f"{refused}=1", role=role)] == [refused]


def test_settings_of_a_file_that_gathered_sampling_ignores_are_refused() -> None:
    config, _ = composed("publish_every=0.5", "batch_segments=3")
    found = list(applicable.problems(config, "train", ["experiment=mine"]))
    assert [one.partition(" is")[0] for one in found] == ["publish_every: 0.5", "batch_segments: 3"]


def test_file_of_settings_may_hold_settings_of_other_kinds_of_run() -> None:
    config, _ = composed("env_runners=4", "restore=x")
    assert list(applicable.problems(config, "train", ["experiment=mine"])) == []


@pytest.mark.parametrize(
    ("overrides", "network"),
    [
        ([], {"name": "mlp", "hidden_sizes": [64]}),
        (["network.hidden_sizes=[256]"], {"name": "mlp", "hidden_sizes": [256]}),
        (["network=board_resnet"], {"name": "board_resnet"}),
        (["network=board_resnet", "network.blocks=3"], {"name": "board_resnet", "blocks": 3}),
        (["network=mlp", "network.hidden_sizes=[8]"], {"name": "mlp", "hidden_sizes": [8]}),
    ],
)
def test_league_uses_the_network_of_the_command_line(overrides: list[str], network: dict[str, object]) -> None:
    config, given = composed("league=kuhn", *overrides)
    made = with_choices(config, "ppo", given).league
    assert made is not None
    assert {name: made["network"].get(name) for name in network} == network
    if overrides and "board_resnet" in overrides[0]:
        assert "hidden_sizes" not in made["network"]
