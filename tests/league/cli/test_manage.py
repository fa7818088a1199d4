"""`python -m league.manage`: changes players of a running league by hand."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save
from support.store_fixtures import assert_replayed, store_on

from league.cli import manage
from league.matchmaking.view import ModelRef
from league.models.pool import Pool
from league.redis.store import Store
from league.state.periods import Periods
from warren.errors import PlayerError

WEIGHTS = save({"layer": np.arange(4, dtype=np.float32)})


@pytest.fixture
def store(redis_url: str, run_name: str) -> Store:
    made = store_on(redis_url, f"warren.{run_name}")
    made.add_player("main", "pfsp", {"weighting": "variance"}, rules={"gamma": 0.99})
    made.add_player("rival", "random")
    return made


@pytest.fixture
def pool(store: Store, run_name: str) -> Pool:
    made = Pool(store.redis, f"warren.{run_name}:")
    made.put("main", 7, 700, WEIGHTS)
    return made


@pytest.fixture
def command(run_command):  # type: ignore[no-untyped-def]
    return partial(run_command, manage.main)


def test_add_sets_options_rules_and_the_initial_model(command, store: Store, pool: Pool) -> None:  # type: ignore[no-untyped-def]
    added = ("add", "hunter", "main_exploiter", "reset_probability=0.5", "--rule", "lr=0.001", "--initial", "main@7")
    assert command(*added)[:2] == (0, "added hunter (main_exploiter)\n")
    hunter = store.player("hunter")
    assert (hunter.config, hunter.hyperparameters) == ({"reset_probability": 0.5}, {"lr": 0.001})
    assert hunter.initial == ModelRef("main", 7) and pool.info(hunter.initial).frozen  # type: ignore[union-attr]
    assert command(*added)[:2] == (0, "hunter exists\n")
    status, _, error = command("add", "hunter", "main_exploiter", "--initial", "main@7")
    assert status == 2 and 'exists with config={"reset_probability":0.5}, rules={"lr":0.001}; use `set`' in error
    assert_replayed(store)


def test_a_player_may_be_a_frozen_model(command, store: Store, pool: Pool) -> None:  # type: ignore[no-untyped-def]
    assert command("add", "old", "self_play", "--model", "main@7")[0] == 0
    old = store.player("old")
    assert old.frozen and old.model == ModelRef("main", 7) and pool.info(old.model).frozen  # type: ignore[union-attr]
    status, _, error = command("add", "older", "self_play", "--model", "main@6")
    assert status == 2 and "main@6 is not in the pool" in error and "older" not in store.view().roster


def test_a_player_that_is_the_newest_model_has_that_version_for_good(command, store: Store, pool: Pool) -> None:  # type: ignore[no-untyped-def]
    newest = ModelRef("main", pool.version("main") or 0)
    assert command("add", "copy", "self_play", "--model", "main@newest")[0] == 0
    assert store.player("copy").model == newest and pool.info(newest).frozen  # type: ignore[union-attr]
    command("set", "copy", "model=main@7")
    command("set", "copy", "model=main@newest")
    assert store.player("copy").model == newest


def test_pause_resume_and_remove_can_be_repeated(command, store: Store) -> None:  # type: ignore[no-untyped-def]
    counts = []
    for _ in range(2):
        assert command("pause", "main", "rival")[:2] == (0, "main is paused\nrival is paused\n")
        counts.append(len(list(store.events())))
    assert counts[0] == counts[1]
    with pytest.raises(PlayerError, match="paused"):
        store.request("main", "actor", 60.0)
    assert command("resume", "main", "main")[:2] == (0, "main is learning\n")
    store.request("main", "actor", 60.0)
    for _ in range(2):
        assert command("remove", "rival")[:2] == (0, "rival is removed\n")
    for refused in (("pause", "rival"), ("set", "rival", "kind=random")):
        assert "player 'rival' was removed" in command(*refused)[2]
    assert "its name stays taken" in command("add", "rival", "random")[2]
    assert_replayed(store)


def test_a_player_of_a_kind_that_is_not_imported_here_is_paused_and_removed(  # type: ignore[no-untyped-def]
    command, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(manage.KINDS._entries, "nemesis", manage.KINDS["random"])
    store.add_player("nem", "nemesis")
    monkeypatch.delitem(manage.KINDS._entries, "nemesis")
    status, _, error = command("set", "nem", "config.self_share=0.5")
    assert status == 2 and "kind of player 'nemesis' does not exist" in error
    assert command("pause", "nem")[0] == command("set", "nem", "paused=false")[0] == command("remove", "nem")[0] == 0
    assert store.player("nem").removed


def test_freezing_takes_the_newest_model_and_ends_training(command, store: Store, pool: Pool) -> None:  # type: ignore[no-untyped-def]
    period = Periods(store).open("main", "learner", 60.0)
    pool.put("main", 8, 800, WEIGHTS)
    status, out, _ = command("freeze", "main")
    assert status == 0 and out.startswith("froze main at main@8, for good")
    assert pool.info(ModelRef("main", 8)).frozen  # type: ignore[union-attr]
    assert store.player("main").model == ModelRef("main", 8)
    assert Periods(store).progress(period, 900, 60.0) == "frozen"
    pool.put("main", 9, 900, WEIGHTS)
    assert command("freeze", "main")[:2] == (0, "main is frozen at main@8\n")
    status, _, error = command("freeze", "rival")
    assert status == 2 and "a model of 'rival' is not in the pool" in error and not store.player("rival").frozen


def test_fields_are_set_whole_or_entry_by_entry(command, store: Store, pool: Pool) -> None:  # type: ignore[no-untyped-def]
    assert command("set", "main", "config.self_share=0.25", "paused=true", "initial=main@7")[0] == 0
    main = store.player("main")
    assert main.config == {"weighting": "variance", "self_share": 0.25}
    assert main.paused and main.initial == ModelRef("main", 7)
    assert command("set", "main", "kind=softmax", 'config={"temperature": 0.5}', "initial=")[0] == 0
    main = store.player("main")
    assert (main.kind, main.config, main.initial) == ("softmax", {"temperature": 0.5}, None)
    (shown,) = command("--json", "set", "main", "paused=false")[1].splitlines()
    assert json.loads(shown)["kind"] == "softmax" and json.loads(shown)["paused"] is False
    assert_replayed(store)


def test_a_new_rule_draws_its_value_and_others_keep_theirs(command, store: Store) -> None:  # type: ignore[no-untyped-def]
    rule = '{"rule": "log_uniform", "low": 1e-5, "high": 1e-3}'
    assert command("set", "main", f"rules.lr={rule}", "rules.entropy=0.1")[0] == 0
    first = store.player("main").hyperparameters
    assert first.keys() == {"gamma", "lr", "entropy"} and 1e-5 <= first["lr"] <= 1e-3
    assert command("set", "main", "rules.entropy=0.2", "hyperparameters.lr=0.0007")[0] == 0
    assert store.player("main").hyperparameters == {"gamma": 0.99, "lr": 0.0007, "entropy": 0.2}
    # The learner's next period uses all of them.
    assert Periods(store).open("main", "learner", 60.0).at(0.5) == {"gamma": 0.99, "lr": 0.0007, "entropy": 0.2}
    for given, message in (
        ("hyperparameters.gama=1", "'gama' does not exist; did you mean gamma? give it a rule first"),
        ("hyperparameters.gamma=0.9", "'gamma' is constant by its rule; set rules.gamma=0.9"),
    ):
        status, _, error = command("set", "main", given)
        assert status == 2 and message in error


def test_a_wrong_command_prints_one_line_and_changes_nothing(command, store: Store) -> None:  # type: ignore[no-untyped-def]
    store.add_player("gone", "random")
    store.remove("gone")
    before = list(store.events())
    for arguments, message in (
        (("pause", "main", "rivl"), "'rivl' does not exist; did you mean rival?"),
        (("add", "new", "psfp"), "kind of player 'psfp' does not exist; did you mean pfsp"),
        (
            ("add", "new", "pfsp", "weihgting=linear"),
            "option of pfsp 'weihgting' does not exist; did you mean weighting?",
        ),
        (("add", "new", "pfsp", "weighting=cubed"), "PFSP weighting 'cubed' does not exist; did you mean squared"),
        (("add", "new", "pfsp", "linear"), "'linear' is not an assignment; write name=value"),
        (("add", "new", "fixed", "opponent=mian"), "player 'mian' does not exist; did you mean main?"),
        (
            ("add", "new", "pfsp", "--rule", 'lr={"rule": "log"}'),
            "hyperparameter rule 'log' does not exist; known: choice",
        ),
        (("add", "new one", "pfsp"), "player name 'new one' is not"),
        (("add", "new", "pfsp", "--initial", "mian"), "player 'mian' does not exist; did you mean main"),
        (("add", "new", "pfsp", "--initial", "main@x"), "'main@x' is not a model; write PLAYER@VERSION"),
        (("add", "new", "pfsp", "--initial", "main@²"), "'main@²' is not a model; write PLAYER@VERSION"),
        (("set", "main", "model=mian@newest"), "player 'mian' does not exist; did you mean main"),
        (("set", "main", "confg.self_share=1"), "field of a player 'confg' does not exist; did you mean config?"),
        (("set", "main", "frozen=true"), "`freeze` and `remove` are commands"),
        (("set", "main", "paused=yes"), "paused=yes is neither true nor false"),
        (("set", "main", "config=linear"), "config=linear is not a JSON object"),
        (("add", "new", "pfsp", "self_share=abc"), "pfsp: self_share='abc' has another type than its default, 0.0"),
        (("add", "new", "pfsp", "weighting=[1]"), "weighting=[1] has another type than its default, 'squared'"),
        (("add", "new", "anytime_psro", "look_games=NaN"), "look_games=nan has another type than its default, 4096"),
        (("add", "new", "main_exploiter", "patience=2.5"), "patience=2.5 has another type than its default, 3"),
        (("add", "new", "random", "self_share=true"), "self_share=True has another type than its default, 0.0"),
        (("add", "new", "main_agent", "checkpoint_min_steps=null"), "checkpoint_min_steps=None is not a number of"),
        (("add", "new", "best_response", "budget=null"), "budget=None is not a number of steps; use a whole one"),
        (
            ("add", "new", "pfsp", "--rule", 'lr={"rule": "log_uniform", "low": "a", "high": 1}'),
            "hyperparameter 'lr': a value in {'rule': 'log_uniform', 'low': 'a', 'high': 1} has a wrong type; use",
        ),
        (("add", "new", "pfsp", "--rule", 'lr={"rule": 5}'), "hyperparameter rule 5 does not exist; known: choice"),
        (("set", "main", "kind=5"), "kind of player 5 does not exist; known: anytime_psro"),
        (("set", "main", "kind=[5]"), "kind of player [5] does not exist; known: anytime_psro"),
        (("set", "main", "config.self_share=abc"), "self_share='abc' has another type than its default, 0.0"),
        (("add", "new", "best_response", "opponent=mian"), "player 'mian' does not exist; did you mean main?"),
        (("add", "new", "anytime_psro", "strategy=mian"), "player 'mian' does not exist; did you mean main?"),
        (("add", "new", "best_response", "opponent=5"), "opponent=5 has another type than its default, ''"),
        (("add", "new", "fixed", "opponent=gone"), "player 'gone' was removed from the league for good; name another"),
        (("set", "main", "kind=fixed", 'config={"opponent": "rivl"}'), "'rivl' does not exist; did you mean rival?"),
        (("set", "main", "kind.x=1"), "'kind' of a player has no entries such as 'x'"),
        (("set", "main", "kind=main_agent"), "option of main_agent 'weighting' does not exist"),
        (("--by", "\udcff", "pause", "main"), "'\\udcff' is not text in UTF-8"),
        (("set", "main", "zzz=1"), "kind, model, paused, rules; `freeze` and `remove` are commands"),
        (("--import", "", "kinds"), "--import '' is no module's name"),
        (("--import", ".kinds", "kinds"), "--import '.kinds' is no module's name"),
        (("--import", "no_such_module", "kinds"), "--import no_such_module: No module named"),
    ):
        status, out, error = command(*arguments)
        assert status == 2 and message in error and not out, (arguments, error)
        assert error.startswith("error: ") and error.count("\n") == 1
    assert list(store.events()) == before


def test_a_change_is_recorded_with_its_author(command, store: Store) -> None:  # type: ignore[no-untyped-def]
    command("--by", "ada", "pause", "main")
    command("resume", "main")
    assert [event["by"] for _, event in store.events() if event["event"] == "changed"] == ["ada", "manage"]


def test_a_wrong_run_name_suggests_an_existing_one(
    store: Store, redis_url: str, run_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert manage.main(["--redis", redis_url, "--run", f"{run_name}x", "pause", "main"]) == 2
    assert f"'{run_name}x' does not exist; did you mean" in (error := capsys.readouterr().err) and run_name in error


def test_all_kinds_are_listed_including_imported_ones(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nemesis_kind.py").write_text(
        "from dataclasses import dataclass\n"
        "from league.matchmaking import KINDS, Kind\n"
        "@KINDS.register('nemesis_of_a_test')\n"
        "@dataclass(frozen=True)\n"
        "class Nemesis(Kind):\n"
        "    floor: float = 0.1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert manage.main(["kinds"]) == 0
    listed = capsys.readouterr().out
    assert "main_agent" in listed and "weighting=squared" in listed and "nemesis" not in listed
    assert manage.main(["--import", "nemesis_kind", "kinds"]) == 0
    assert "nemesis_of_a_test" in (listed := capsys.readouterr().out) and "floor=0.1" in listed
    manage.KINDS._entries.pop("nemesis_of_a_test")


def test_freezing_asks_first_and_a_frozen_player_cannot_be_resumed(
    command, store: Store, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdin.readline", lambda: "n\n", raising=False)
    status, out, _ = command("freeze", "main")
    assert status == 1 and "this is for good: a frozen player learns no more. Go on? [y/N]" in out
    assert not store.player("main").frozen
    status, out, _ = command("--yes", "freeze", "main")
    assert status == 0 and "froze main at main@7, for good; to train on from there" in out
    status, _, error = command("resume", "main")
    assert status == 2
    assert "is frozen at main@7, which is for good, so it cannot be resumed; to train on" in error
    assert "add another player: add NAME KIND --initial main@7" in error
