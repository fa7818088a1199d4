"""Learned best responses gain as much as exact ones, measured on deals that are played in both seats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.saved_league import save_league

import envs
from agents import build_policy
from envs import exploitability as exact
from envs.large.phantom import dark_hex
from warren.errors import ConfigurationError
from workers.config.league import LeagueConfig
from workers.evaluation import exploitability
from workers.evaluation.best_response import BestResponse, responding
from workers.evaluation.duplicate_deals import Side, estimate, play_deals
from workers.evaluation.exploitability import FILE, exactly, main, measure
from workers.evaluation.saved_sides import SavedSide, league_in, mixture_of, player_of
from workers.evaluation.scores import table

pytestmark = pytest.mark.usefixtures("one_thread")

KUHN: dict[str, Any] = {
    "env": "openspiel:kuhn_poker",
    "players": {"main": {"kind": "main_agent", "config": {"checkpoint_min_steps": 500, "checkpoint_max_steps": 500}}},
    "network": {"name": "mlp", "hidden_sizes": [32]},
    "algorithm": {
        "name": "ppo", "learning_rate": 0.005, "epochs": 4, "minibatch_size": 512, "gamma": 1.0,
        "normalize_advantage": False, "max_grad_norm": 1.0,
    },
    "games": 64, "tables": 2, "unroll_length": 4, "lanes": 64, "match_games": 32, "reward_scale": 0.5,
    "period_steps": 500, "evaluation_games": 64, "evaluation_rounds": 1, "cell_least": 64,
}  # fmt: skip


def games_of(league: LeagueConfig, number: int = 256) -> envs.TwoPlayerVectorEnv:
    return envs.make_two_player(league.env, number, 5, **league.env_kwargs)


def random_side(league: LeagueConfig, shares: list[list[float]], seed: int = 7) -> SavedSide:
    games = games_of(league, 1)
    spaces = games.single_observation_space, games.single_action_space
    return SavedSide(
        "random", [build_policy(league.network, *spaces, seed + k) for k in range(len(shares[0]))], np.array(shares)
    )


def test_learned_responses_to_a_mixture_gain_what_exact_ones_gain() -> None:
    league = LeagueConfig.from_dict(KUHN)
    target = random_side(league, [[0.3, 0.7], [0.9, 0.1]])
    found = measure(league, target, 12_000, 20_000, 1)
    known = exactly(league, target, print)
    assert known is not None
    assert found.gain.mean == pytest.approx(known, rel=0.1)
    assert found.gain.lower < known
    assert found.gain.count == 20_000 and 12_000 <= found.decisions < 13_000 and not found.interrupted


def test_members_play_as_often_as_their_share_in_each_seat() -> None:
    side = Side([], np.array([[0.2, 0.8], [1.0, 0.0]]))
    drawing = torch.Generator().manual_seed(0)
    assert side.draw(0, 10_000, drawing).mean() == pytest.approx(0.8, abs=0.02)
    assert side.draw(1, 10_000, drawing).sum() == 0


def test_both_seats_of_a_deal_have_the_same_cards() -> None:
    """Against itself, a greedy player's returns in the two seats of a deal cancel out."""
    league = LeagueConfig.from_dict(KUHN)
    one = Side(random_side(league, [[1.0], [1.0]]).policies, np.ones((2, 1)), greedy=True)
    found = play_deals(games_of(league), one, one, 1000, torch.Generator().manual_seed(1))
    assert found.shape == (2, 1000) and np.ptp(found[0]) > 0.0
    assert (found[0] + found[1] == 0.0).all()


def test_returns_on_deals_are_those_of_the_game_tree() -> None:
    league = LeagueConfig.from_dict(KUHN)
    sides = [random_side(league, [[1.0], [1.0]], seed) for seed in (3, 4)]
    form = exact.load(league.env)
    payoff = exact.payoff(form, [table(form, side.policies[0]) for side in sides])[0, 1]
    found = play_deals(games_of(league, 512), sides[0].side, sides[1].side, 20_000, torch.Generator().manual_seed(1))
    gain = estimate(found.mean(axis=0), 2.0, 0.999)
    assert gain.lower < payoff < gain.upper
    assert gain.upper - gain.lower < 0.12


def test_a_response_learns_for_its_budget_and_no_longer() -> None:
    league = LeagueConfig.from_dict(KUHN)
    response = BestResponse(league, random_side(league, [[1.0], [1.0]]).side, 4000, 1, {"epochs": 1})
    assert [*response.train()][-1] == response.steps
    assert 4000 <= response.steps < 4200
    assert {one.algorithm.config.epochs for one in response.responders} == {1}  # type: ignore[attr-defined]
    with pytest.raises(ConfigurationError, match="epoch"):
        BestResponse(league, random_side(league, [[1.0], [1.0]]).side, 4000, 1, {"epoch": 1})


def test_policies_with_a_memory_can_respond_and_be_targets() -> None:
    network = {"name": "mlp", "hidden_sizes": [], "core": {"name": "lstm", "size": 8}}
    league = LeagueConfig.from_dict({**KUHN, "network": network})
    target = random_side(league, [[0.5, 0.5], [0.5, 0.5]])
    found = measure(league, target, 6000, 2000, 1)
    known = exactly(league, target, print)
    assert known is not None and found.gain.lower < known
    assert found.gain.mean > known / 2.0


def test_warm_responses_start_from_the_targets_most_played_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    league = LeagueConfig.from_dict(KUHN)
    target = random_side(league, [[0.2, 0.8], [0.6, 0.4]])
    monkeypatch.setattr(BestResponse, "train", lambda self: iter(()))  # the initial weights are measured
    form = exact.load(league.env)
    tables = [table(form, policy) for policy in target.policies]
    greedy = np.eye(form.action_mask.shape[1])[np.where(form.action_mask, tables[1], -1.0).argmax(axis=1)]
    mixed = exact.mixture(form, tables, target.shares)
    gains = exact.payoff(form, [greedy, mixed])[0, 1]
    found = measure(league, target, 1000, 20_000, 1, warm=True)
    assert found.gain.lower < gains < found.gain.upper and found.decisions == 0
    fresh = measure(league, target, 1000, 2000, 1)
    assert abs(fresh.gain.mean - gains) > 0.05


@pytest.mark.parametrize(("changes", "last"), [({}, 0.002), ({"entropy_coefficient": 0.3}, 0.3)])
def test_the_entropy_bonus_falls_unless_one_is_given(changes: dict[str, float], last: float) -> None:
    league = LeagueConfig.from_dict(KUHN)
    responses = BestResponse(league, random_side(league, [[1.0], [1.0]]).side, 1000, 1, changes)
    for _ in responses.train():
        pass
    for responder in responses.responders:
        assert responder.algorithm.config.entropy_coefficient == pytest.approx(last, abs=0.01)


def test_responses_drop_the_leagues_schedules_and_regularization() -> None:
    falling = {"name": "linear", "start": 0.01, "end": 0.0, "over": "progress"}
    settings = {
        "learning_rate": falling,
        "magnet_coefficient": 0.2,
        "proximal_coefficient": 0.05,
        "rnd_coefficient": 0.5,
        "entropy_decay_steps": 9,
    }
    found = responding(LeagueConfig.from_dict({**KUHN, "algorithm": {**KUHN["algorithm"], **settings}}), 5000)
    assert (found["learning_rate"], found["anneal_steps"], found["entropy_decay_steps"]) == (0.01, 5000, None)
    assert found["magnet_coefficient"] == found["proximal_coefficient"] == found["rnd_coefficient"] == 0.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs") / "kuhn"
    save_league(place, KUHN, 8)
    return place


def test_the_mixture_of_a_run_is_that_of_its_evaluators(folder: Path, tmp_path: Path) -> None:
    place, league = league_in(folder)
    target = mixture_of(place, league)
    assert target.name.startswith(f"the Nash mixture of {len(target.policies)} of ")
    assert target.shares.sum(axis=1) == pytest.approx([1.0, 1.0])
    local = save_league(tmp_path / "again", KUHN, 4)
    slots, shares = local.mixture()
    form = exact.load(league.env)
    live = exact.mixture(form, [table(form, local.policy_of(int(slot))) for slot in slots], shares)
    again = mixture_of(tmp_path / "again", league)
    assert exactly(league, again, print) == pytest.approx(exact.of(form, live), abs=1e-3)


def test_the_command_measures_a_run_and_adds_to_its_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(folder), "--budget", "8000", "--deals", "2000"]
    assert main(words) == 0
    assert main([*words, "epochs=2", "--player", "main", "--no-exact"]) == 0
    said = capsys.readouterr().out
    assert "points a game, 95%, 4,000 games on 2,000 deals" in said and "exact exploitability: " in said
    mixture, player = [json.loads(line) for line in (folder / FILE).read_text().splitlines()]
    assert (mixture["player"], player["player"], player["exact"]) == ("mixture", "main", None)
    assert mixture["gain"]["lower"] < mixture["gain"]["mean"] < mixture["gain"]["upper"]
    assert mixture["exact"] > 0.0 and mixture["decisions"] >= 8000


def test_ctrl_c_measures_what_was_learned_so_far(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(BestResponse):
        def train(self):
            for number, steps in enumerate(super().train()):
                if number == 4:
                    raise KeyboardInterrupt
                yield steps

    monkeypatch.setattr(exploitability, "BestResponse", Interrupted)
    assert main([str(folder), "--player", "main", "--budget", "8000", "--deals", "500", "--no-exact"]) == 130
    said = capsys.readouterr()
    assert "interrupted after" in said.err and "1,000 games on 500 deals" in said.out
    assert json.loads((folder / FILE).read_text().splitlines()[-1])["interrupted"]


def test_wrong_arguments_are_named_all_at_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(folder), "--budget", "0", "--deals", "0", "epochs"]) == 2
    said = capsys.readouterr().err
    assert all(wrong in said for wrong in ("--budget: 0", "--deals: 0", "epochs: is not SETTING=VALUE"))
    assert main([str(folder), "--player", "mian"]) == 2
    assert "did you mean main" in capsys.readouterr().err


def test_the_exact_figure_alone_of_a_game_too_large_for_a_sequence_form(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "hex"
    save_league(place, {**KUHN, "env": "openspiel:dark_hex", "env_kwargs": {"board_size": 2}}, 1)
    game = dark_hex("small enough for a test", 2, 2)
    monkeypatch.setattr(exact, "large", lambda *_, **__: game)
    assert main([str(place), "--player", "main", "--exact"]) == 0
    said = capsys.readouterr().out
    assert "exact: takes up to 0.5 GiB of memory and about 1 s of one core; policies: 1" in said
    assert "best responses" not in said
    found = json.loads((place / FILE).read_text())["exact"]
    main_agent = player_of(place, "main").policies[0]
    assert found == pytest.approx(game.exploitability([main_agent.probabilities]), abs=1e-9)
    monkeypatch.setattr(game, "gib", 1e9)
    assert main([str(place), "--player", "main", "--exact"]) == 1
    assert "are free; end other programs" in capsys.readouterr().out
