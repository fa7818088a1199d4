import os
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
import yaml
from omegaconf import OmegaConf

from agents import checkpoints
from envs import exploitability
from envs.fightingice import game as fightingice_game
from league.matchmaking import distribution, kind_of
from league.state.league_state import LeagueState
from warren.errors import ConfigurationError
from workers.config.league import LeagueConfig
from workers.config.schema import CONF
from workers.evaluation.composition import shares_by_kind
from workers.leagues.local import LocalLeague

pytestmark = pytest.mark.usefixtures("one_thread")


SOON = {"checkpoint_min_steps": 600, "checkpoint_max_steps": 600}
PPO = {
    "name": "ppo",
    "learning_rate": 0.05,
    "epochs": 4,
    "minibatch_size": 512,
    "gamma": 1.0,
    "entropy_coefficient": 0.05,
    "normalize_advantage": False,
}


def config(env="openspiel:kuhn_poker", **changes):
    given = {
        "env": env,
        "network": {"hidden_sizes": []},
        "algorithm": PPO,
        "players": {
            "main": {"kind": "main_agent", "config": SOON},
            "exploiter": {"kind": "main_exploiter", "config": SOON},
            "league": {"kind": "league_exploiter", "config": {**SOON, "reset_probability": 0.5}},
        },
        "games": 32,
        "tables": 2,
        "unroll_length": 4,
        "lanes": 32,
        "match_games": 32,
        "period_steps": 300,
        "evaluation_games": 64,
        "evaluation_rounds": 1,
        "cell_least": 64,
        "cell_error": 0.2,
    }
    return LeagueConfig.from_dict({**given, **changes})


def weights(policy):
    return torch.cat([parameter.detach().flatten() for parameter in policy.parameters()]).clone()


def test_a_league_plays_learns_freezes_and_resets_and_its_history_can_be_replayed():
    events = []
    league = LocalLeague(config(), events.append)
    for _ in range(20):
        league.round()
    state = league.league.state
    parents = [player.parent for player in state.roster if player.frozen]
    assert all(parents.count(name) >= 3 for name in league.trainees)
    assert set(league.frozen) == {player.name for player in state.roster if player.frozen}
    # The exploiter begins anew with each snapshot, the main agent never.
    assert state.players["exploiter"].generation == parents.count("exploiter")
    assert state.players["main"].generation == 0
    assert all(trainee.steps == 20 * 4 * 32 for trainee in league.trainees.values())
    replayed = LeagueState()
    for event in events:
        replayed.apply(event)
    assert replayed.differences(state) == []
    counters = state.counters
    assert counters["issued"] == counters["counted"] + counters["aborted"] + len(state.matches)


def test_a_player_may_learn_more_often_than_others():
    players = {"main": {"kind": "main_agent", "updates": 3}, "exploiter": {"kind": "main_exploiter"}}
    league = LocalLeague(config(players=players))
    league.round()
    assert [league.trainees[name].version for name in ("main", "exploiter")] == [3, 1]
    shares = {"main": 0.75, "exploiter": 0.25}
    players = {name: {"kind": "random", "updates": share} for name, share in shares.items()}
    league = LocalLeague(config(players=players))
    for _ in range(3):
        league.round()
    assert {name: trainee.steps / (3 * 4 * 128) for name, trainee in league.trainees.items()} == shares
    with pytest.raises(ConfigurationError, match="updates=0 of player 'main' must be above 0"):
        config(players={"main": {"kind": "main_agent", "updates": 0}})


def test_a_best_response_is_frozen_after_its_budget_and_begins_anew():
    players = {
        "main": {"kind": "self_play", "config": {"snapshot_every": None}},
        "response": {"kind": "best_response", "config": {"opponent": "main", "budget": 600}},
    }
    league = LocalLeague(config(players=players))
    for _ in range(11):  # 128 decisions each, 300 per period: the budget is spent at every second period's end
        league.round()
    response = league.league.state.players["response"]
    names = [name for name in league.frozen if name.startswith("response@")]
    assert len(names) == response.generation == 1
    opponents = {match.away for match in league.league.state.matches.values() if match.home == "response"}
    assert opponents == {"main"}


def test_snapshots_stay_what_they_were_while_the_player_learns_on():
    league = LocalLeague(config())
    main = league.trainees["main"]
    while len(league.frozen) < 3:
        league.round()
    before = {name: weights(policy) for name, policy in league.frozen.items()}
    moving = weights(main.policy)
    for _ in range(3):
        league.round()
    assert all(torch.equal(before[name], weights(league.frozen[name])) for name in before)
    assert not torch.equal(moving, weights(main.policy))
    assert not any(parameter.requires_grad for parameter in league.frozen["main@0"].parameters())


def test_averages_of_weights_are_frozen_beside_snapshots_or_in_their_place():
    players = {
        "main": {"kind": "random", "config": {"snapshot_every": 0}, "averages": [0.9, 0.01]},
        "alone": {"kind": "random", "config": {"snapshot_every": 0}, "averages": [0.5], "averages_alone": True},
    }
    events = []
    league = LocalLeague(config(players=players, period_steps=512), events.append)
    seen = {name: [] for name in players}
    for _ in range(4):  # 128 decisions each: four make a period
        for name, trainee in league.trainees.items():
            league.learn(trainee)
            seen[name].append(weights(trainee.policy))
    assert list(league.frozen)[2:] == [
        *("main@4", "main.average-0.9@4", "main.average-0.01@4", "alone.average-0.5@4"),
    ]
    by_rate = seen["main"][0]
    for now in seen["main"][1:]:
        by_rate = torch.lerp(by_rate, now, 0.9)
    assert torch.equal(weights(league.frozen["main@4"]), seen["main"][-1])
    assert torch.allclose(weights(league.frozen["main.average-0.9@4"]), by_rate)
    late = torch.tensor([24.0, 120.0, 360.0, 840.0])[:, None]  # k (k + 1) (k + 2) (k + 3)
    weighed = (torch.stack(seen["main"]) * late).sum(dim=0) / late.sum()
    assert torch.allclose(weights(league.frozen["main.average-0.01@4"]), weighed, atol=1e-6)
    state = league.league.state
    averages = [player for player in state.roster if player.is_average]
    assert [player.parent for player in averages] == ["main", "main", "alone"]
    assert [player.slot for player in averages] == [5, 6, 7]
    assert shares_by_kind(averages, np.full((2, 3), 1 / 3)) == {"random average": 1.0}
    replayed = LeagueState()
    for event in events:
        replayed.apply(event)
    assert replayed.differences(state) == []
    league.evaluate(1.0)
    assert league.mixture()[1].shape == (2, 6), "they are candidates for the mixture"


def test_self_play_psro_freezes_an_answer_and_its_opponents_average():
    players = {
        "answer": {"kind": "anytime_psro", "config": {"budget": 600, "look_games": 64, "strategy": "strategy"}},
        "strategy": {
            "kind": "best_response",
            "config": {"opponent": "answer", "budget": 600},
            "averages": [0.01],
            "averages_alone": True,
        },
    }
    league = LocalLeague(config(players=players, period_steps=250))
    league._training_time = 1e9  # there is time for every look
    looked = []
    for _ in range(14):  # 128 decisions each: a period per two, an answer per six
        for trainee in league.trainees.values():
            league.learn(trainee)
        looked += [league.league.state.looks(league.league.state.players["answer"])]
    assert set(league.frozen) == {f"{name}@{when}" for name in ("answer", "strategy.average-0.01") for when in (6, 12)}
    members = {slot for looks in looked for look in looks for slot, *_ in look.members}
    assert members == {player.slot for player in league.league.state.roster if player.frozen}
    assert all(seen.generation == 1 for seen in looked[8]) and looked[8]
    met = {match.branch for match in league.league.state.matches.values() if match.home == "answer"}
    assert met <= {"strategy", "meta_in_seat_0", "meta_in_seat_1"}


def test_averages_begin_anew_with_a_reset_and_wrong_ones_are_refused():
    players = {
        "main": {"kind": "random"},
        "response": {"kind": "best_response", "config": {"opponent": "main", "budget": 256}, "averages": [0.1]},
    }
    league = LocalLeague(config(players=players, period_steps=256))
    response = league.trainees["response"]
    for _ in range(3):
        league.learn(response)
    assert response.averages.updates == 1
    with pytest.raises(ConfigurationError) as refused:
        config(
            players={
                "main": {"kind": "random", "averages": [0.0, 0.0]},
                "alone": {"kind": "random", "averages_alone": True},
                "taken": {"kind": "random", "averages": [0.5]},
                "taken.average-0.5": {"kind": "random"},
            }
        )
    for said in ("averages=[0.0, 0.0] of player 'main'", "averages_alone of player 'alone'", "player 'taken': another"):
        assert said in str(refused.value)


def test_an_opponent_that_learns_stays_what_it_was_until_its_match_ends():
    league = LocalLeague(config(match_games=10_000))
    main, exploiter = league.trainees["main"], league.trainees["exploiter"]
    league.learn(exploiter)
    (met,) = {opponent.policy for opponent in exploiter.sampler.seating.known.values() if opponent.policy}
    before = weights(main.policy)
    for _ in range(2):
        league.learn(main)
    assert torch.equal(weights(met), before) and not torch.equal(weights(main.policy), before)
    assert torch.equal(weights(league.opponent("main")), weights(main.policy))
    assert league.opponent("main") is league.opponent("main") is not main.policy


def test_a_reset_player_has_fresh_weights_a_fresh_optimizer_and_no_old_experience():
    league = LocalLeague(config())
    exploiter = league.trainees["exploiter"]
    actor = exploiter.policy.network.policy_trunk  # its last layer begins near 0
    first = weights(actor)
    while league.league.state.players["exploiter"].generation == 0:
        last = weights(actor)
        league.learn(exploiter)
    fresh = weights(actor)
    assert (fresh - first).abs().max() < 0.1 < (last - first).abs().max()  # as small as initial weights
    assert not torch.equal(fresh, first)  # but different ones
    assert exploiter.algorithm.state()[1] == {"steps": 0}
    assert exploiter.matches.collect(32).version.min() == exploiter.version


RESETTING = {"kind": "main_agent", "config": {**SOON, "reset_probability": 1.0}}


def until_reset(league, name):
    while league.league.state.players[name].generation == 0:
        league.learn(league.trainees[name])


def test_a_reset_goes_back_to_the_initial_model_and_schedules_begin_anew(tmp_path):
    trained = LocalLeague(config(players={"main": {"kind": "main_agent"}})).trainees["main"]
    checkpoints.save(tmp_path / "checkpoints", "1", trained.policy, trained.algorithm, {"network": {}})
    players = {
        "other": {**RESETTING, "initial": "main@0"},
        "third": {**RESETTING, "initial": str(tmp_path)},
        "main": {"kind": "main_agent"},
    }
    annealed = {**PPO, "anneal_steps": 10_000}
    league = LocalLeague(config(players=players, algorithm=annealed))
    for name, initial in (("other", league.frozen["main@0"]), ("third", trained.policy)):
        trainee = league.trainees[name]
        assert torch.equal(weights(trainee.policy), weights(initial))
        until_reset(league, name)
        assert torch.equal(weights(trainee.policy), weights(initial))
        assert (trainee.algorithm.steps, trainee.schedules_from) == (0, trainee.steps)
        assert league.learn(trainee)["learning_rate"] == PPO["learning_rate"]
    with pytest.raises(ConfigurationError, match=r"players\.other\.initial: there is no main@7 when other begins"):
        LocalLeague(config(players={"other": {**RESETTING, "initial": "main@7"}, "main": players["main"]}))


def test_an_exploiter_may_begin_with_the_newest_weights_of_its_target_at_each_reset():
    players = {
        "exploiter": {"kind": "main_exploiter", "config": SOON, "initial": "main"},
        "main": {"kind": "main_agent"},
    }
    league = LocalLeague(config(players=players))
    main, exploiter = league.trainees["main"], league.trainees["exploiter"]
    assert list(league.trainees) == ["exploiter", "main"]
    assert torch.equal(weights(exploiter.policy), weights(main.policy))
    for generation in (1, 2):
        league.learn(main)
        while league.league.state.players["exploiter"].generation < generation:
            league.learn(exploiter)
        assert torch.equal(weights(exploiter.policy), weights(main.policy))
        assert exploiter.algorithm.steps == 0


def test_the_same_seed_gives_the_same_league_and_another_does_not():
    found = []
    for seed in (1, 1, 2):
        league = LocalLeague(config(seed=seed, evaluation_share=0.0))
        for _ in range(8):
            league.round()
        found.append((weights(league.trainees["main"].policy), league.league.state))
    assert torch.equal(found[0][0], found[1][0]) and found[0][1] == found[1][1]
    assert not torch.equal(found[0][0], found[2][0])


def test_hyperparameters_follow_their_rules():
    schedule = {"rule": "schedule", "points": [[0.0, 0.1], [1.0, 0.0]]}
    players = {"main": {"kind": "self_play", "hyperparameters": {"entropy_coefficient": schedule}}}
    league = LocalLeague(config(players=players))
    main = league.trainees["main"]
    seen = []
    for _ in range(3):
        league.learn(main)
        seen.append(main.algorithm.config.entropy_coefficient)
    assert seen == pytest.approx([0.1, 0.1 * (1 - 128 / 300), 0.1 * (1 - 256 / 300)])


def test_population_based_training_copies_weights_and_hyperparameters():
    rules = {"learning_rate": {"rule": "log_uniform", "low": 1e-4, "high": 1e-1}}
    kind = {"kind": "pbt_elo", "config": {"exploit_below": 0.45, "snapshot_every": 1200}, "hyperparameters": rules}
    league = LocalLeague(config("matrix:elo", players=dict.fromkeys(("a", "b", "c"), kind)))
    state = league.league.state
    for trainee in [trainee for _ in range(200) for trainee in league.trainees.values()]:
        league.learn(trainee)
        if state.players[trainee.name].generation:
            break
    same = [
        name for name, other in league.trainees.items() if torch.equal(weights(trainee.policy), weights(other.policy))
    ]
    assert len(same) == 2  # itself and the stronger one
    source = next(name for name in same if name != trainee.name)
    assert state.progress[trainee.name].start.startswith(source)
    rates = [state.players[name].hyperparameters["learning_rate"] for name in (trainee.name, source)]
    assert rates[0] != rates[1]


@pytest.mark.parametrize(("env", "rounds", "goal"), [("matrix:rps", 40, 0.1), ("openspiel:kuhn_poker", 80, 0.25)])
def test_the_mixture_of_a_league_becomes_hard_to_exploit(env, rounds, goal):
    slow = {"checkpoint_min_steps": 5000, "checkpoint_max_steps": 10_000}
    # Networks usually begin uniform, which solves rock-paper-scissors: begin with a favourite.
    rps, poker = {"hidden_sizes": [], "policy_gain": 3.0}, {"hidden_sizes": [32], "activation": "relu"}
    network = rps if env == "matrix:rps" else poker
    kinds = {"main": "main_agent", "exploiter": "main_exploiter", "league": "league_exploiter"}
    league = LocalLeague(
        config(
            env,
            network=network,
            algorithm={**PPO, "learning_rate": 0.05 if env == "matrix:rps" else 0.005},
            players={name: {"kind": kind, "config": slow} for name, kind in kinds.items()},
            games=128,
            lanes=128,
            period_steps=5000,
            evaluation_games=512,
            evaluation_share=0.0,  # it goes by the clock, and the result must not depend on the machine
            cell_least=2048,
            cell_most=4096,
            cell_error=0.01,
        )
    )
    form = exploitability.load(env)

    def of_mixture():
        slots, shares = league.mixture()
        tables = [exploitability.tabulate(form, league.policy_of(int(slot)).probabilities) for slot in slots]
        return exploitability.of(form, exploitability.mixture(form, tables, shares))

    assert of_mixture() > 0.4
    for _ in range(rounds):
        league.round()
    while league.evaluator.step(league.league.state.roster.historical):
        pass
    assert of_mixture() < goal


def of_the_mixture(league, shares):
    form, slots = exploitability.load(league.config.env), league.league.state.roster.historical
    tables = [exploitability.tabulate(form, league.policy_of(int(slot)).probabilities) for slot in slots]
    return exploitability.of(form, exploitability.mixture(form, tables, shares))


def test_the_mixture_against_best_responses_beats_the_players_equilibrium():
    league = LocalLeague(
        config(
            players={"main": {"kind": "self_play"}},
            algorithm={**PPO, "learning_rate": 0.02},
            evaluation="exact",
            evaluation_share=0.0,
            mixture_against="best_responses",
        )
    )
    for _ in range(30):
        league.round()
    before = of_the_mixture(league, league.mixture()[1])  # the newest
    while league.evaluator.step(league.league.state.roster.historical):
        pass
    slots, shares = league.mixture()
    league.returns.settings = replace(league.returns.settings, against="players")
    equilibrium = league.returns.mixture(slots).shares
    found = of_the_mixture(league, shares)
    assert found < 0.9 * of_the_mixture(league, equilibrium) and found < before
    assert (shares > 0.05).any(axis=0).sum() > 1


@pytest.mark.parametrize("against", [{}, {"evaluation": "exact", "mixture_against": "best_responses"}])
def test_psro_players_meet_the_mixture_of_the_evaluators_games(against):
    players = {name: {"kind": "psro", "config": {"refresh": 1}} for name in ("one", "two")}
    favourite = {"hidden_sizes": [], "policy_gain": 3.0}
    league = LocalLeague(config("matrix:rps", players=players, network=favourite, evaluation_share=0.0, **against))
    state, me = league.league.state, league.league.state.players["one"]
    for _ in range(6):
        league.round()
    while league.evaluator.step(state.roster.historical):
        pass
    slots, scored = league.mixture()
    shares = distribution(kind_of("psro", {"refresh": 1}), state, me)[slots]
    assert len(slots) > 3 and shares.max() > 2 / len(slots)  # far from uniform
    np.testing.assert_allclose(shares, scored.mean(axis=0))
    met = Counter(league.league.request("one").away for _ in range(2000))
    found = np.array([met[state.roster.by_slot[int(slot)].name] for slot in slots])
    assert (np.abs(found - 2000 * shares) <= 4.5 * np.sqrt(2000 * shares * (1 - shares)) + 1e-9).all()


def test_plain_self_play_cycles_in_rock_paper_scissors():
    league = LocalLeague(
        config("matrix:rps", players={"main": {"kind": "self_play"}}, games=128, lanes=128, evaluation_share=0.0)
    )
    form = exploitability.load("matrix:rps")
    found = []
    for _ in range(120):
        league.round()
        policy = exploitability.tabulate(form, league.trainees["main"].policy.probabilities)
        found.append((exploitability.of(form, policy), int(policy[0].argmax())))
    late = found[60:]
    assert np.median([value for value, _ in late]) > 0.2
    assert {favourite for _, favourite in late} == {0, 1, 2}


NEEDED = {"engines": ["gfootball"], "pong": ["multi_agent_ale_py", "ale_py", "cv2"], "slimevolley": ["slimevolleygym"]}


@pytest.mark.parametrize("path", sorted((CONF / "league").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_league_of_the_configuration_plays(path):
    for loaded in (OmegaConf.to_container(OmegaConf.load(path)), yaml.safe_load(path.read_text())):
        league_config = LeagueConfig.from_dict(loaded)
    kinds = sorted(player.kind for player in league_config.players.values())
    if path.stem.endswith("_psro"):
        assert kinds == ["psro", "psro"]
    elif path.stem in ("connect_four", "fightingice", "pong", "slimevolley"):
        assert kinds == ["pfsp"]
    elif path.stem in ("engines", "kuhn_of_three", "nim_gamecore"):
        assert kinds == ["main_agent", "main_exploiter"]
    elif path.stem in ("teams", "roles"):
        assert set(kinds) == {"main_agent"}
    elif path.stem in ("leduc", "liars_dice"):
        assert kinds == ["league_exploiter", "league_exploiter", "main_agent", "main_exploiter", "self_play"]
    elif path.stem != "mine":
        assert kinds == ["league_exploiter", "league_exploiter", "main_agent", "main_exploiter"]
    for module in NEEDED.get(path.stem, ()):
        pytest.importorskip(module)
    if path.stem == "fightingice" and fightingice_game.FOLDER not in os.environ:
        pytest.skip(f"{fightingice_game.FOLDER} names no game")
    if path.stem == "nim_gamecore":  # tests/integration/test_gamecore_league.py plays it
        with pytest.raises(ConfigurationError, match="drives itself: only gateways play it"):
            LocalLeague(league_config)
        return
    league = LocalLeague(league_config)
    metrics = league.learn(list(league.trainees.values())[-1])
    assert np.isfinite(list(metrics.values())).all()


def test_all_wrong_settings_are_named():
    with pytest.raises(ConfigurationError) as error:
        LeagueConfig.from_dict({"env": "matrix:rps", "tabels": 3, "players": {"main": {"kid": "main_agent"}}})
    assert len(error.value.problems) == 2
    for part in ("'tabels' does not exist; did you mean tables", "kind: main_agent"):
        assert part in str(error.value)
    players = {"main": {"kind": "main_agnt"}, "other": {"kind": "pfsp", "config": {"weighting": "cubed"}}}
    with pytest.raises(ConfigurationError) as error:
        config(players=players, games=30, evaluation_share=1.0, period_steps=0, settings={"decay": 2.0})
    text = str(error.value)
    for part in ("main_agnt", "cubed", "games=30", "evaluation_share=1.0", "period_steps=0", "decay=2.0"):
        assert part in text


@pytest.mark.parametrize(("kind", "option"), [("fixed", "opponent"), ("anytime_psro", "strategy")])
def test_players_named_in_options_have_to_be_in_the_league(kind, option):
    def players(name):
        return {"main": {"kind": "pfsp"}, "other": {"kind": kind, "config": {option: name}}}

    for name in ("main", "main@5", "main.average-0.1@5"):
        config(players=players(name))
    for name in ("mian", "mian@5", "main.average-0.1"):
        with pytest.raises(
            ConfigurationError, match=f"player 'other': player '{name}' does not exist; (did you mean|known:)"
        ):
            config(players=players(name))


def test_schedules_may_follow_the_progress_of_a_run_in_one_process():
    rate = {"name": "linear", "start": 0.05, "end": 0.0, "over": "progress"}
    league = LocalLeague(config(algorithm={**PPO, "learning_rate": rate}))
    seen = []
    for league.progress in (0.0, 0.5):
        seen.append([league.learn(trainee)["learning_rate"] for trainee in league.trainees.values()])
    assert seen == [[0.05] * 3, [0.025] * 3]


def test_a_player_may_have_its_own_settings_and_be_tied_to_its_first_weights():
    tie = {"name": "linear", "start": 1.0, "end": 0.0, "steps": 400}
    own = {"entropy_coefficient": {**tie, "start": 0.3}, "magnet_coefficient": tie}
    players = {"exploiter": {**RESETTING, "initial": "main@0", "algorithm": own}, "main": {"kind": "main_agent"}}
    league = LocalLeague(config(players=players))
    exploiter, main = league.trainees["exploiter"], league.trainees["main"]
    assert (exploiter.algorithm.entropy_coefficient, main.algorithm.entropy_coefficient) == (0.3, 0.05)
    until_reset(league, "exploiter")
    assert exploiter.algorithm.entropy_coefficient == 0.3 and exploiter.algorithm.magnet is None
    said = [league.learn(exploiter) for _ in range(5)]  # each has 128 decisions
    assert torch.equal(weights(exploiter.algorithm.magnet.policy), weights(league.frozen["main@0"]))
    assert ["magnet_kl" in metrics for metrics in said] == [True, True, True, True, False]
    assert "magnet_kl" not in league.learn(main)


def test_minimax_changes_rewards_of_trajectories_but_not_results():
    rewards, returns = [], []
    for minimax in (0.0, 1.0):
        players = {"main": {"kind": "main_agent"}, "exploiter": {"kind": "main_exploiter", "minimax": minimax}}
        league = LocalLeague(config(players=players))
        assert [league.config.minimax_of(name) for name in players] == [0.0, minimax]
        exploiter = league.trainees["exploiter"]
        with torch.no_grad():
            for parameter in league.frozen["main@0"].parameters():
                parameter.add_(0.3)
            for parameter in league.trainees["main"].policy.parameters():
                parameter.add_(0.3)
        trajectory = exploiter.matches.collect(32)
        rewards.append(trajectory.reward)
        returns.append(trajectory.episodes[:, 0])
    assert not np.array_equal(*rewards)
    np.testing.assert_array_equal(*returns)
    with pytest.raises(ConfigurationError, match=r"minimax=-1\.0 of player 'main' must be at least 0, and finite"):
        config(players={"main": {"kind": "main_agent", "minimax": -1.0}})
