"""league.state.replay: a league at any moment from its stream alone, and a history through another matchmaker."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.store_fixtures import folded, store_on

from league.cli import replay as replay_command
from league.matchmaking import KINDS, Branch, Kind, distribution, kind_of, weighted
from league.matchmaking.view import Player, View
from league.redis.store import Store
from league.rules.ratings import Skills
from league.state import replay
from league.state.history import History
from league.state.in_memory import MemoryLeague
from league.state.league_state import Event, LeagueState
from league.state.periods import Periods
from warren import progress
from warren.errors import LeagueError, PlayerError


@pytest.fixture
def played(redis_url: str, run_name: str) -> tuple[Store, list[tuple[str, LeagueState]]]:
    """Return (a played league, (id of the last event, live state) at some moments)."""
    store = store_on(redis_url, f"warren.{run_name}")
    store.add_player("main", "pfsp", {"weighting": "variance"})
    store.add_player("rival", "random")
    rng, moments = np.random.default_rng(1), []
    for step in range(80):
        if step % 20 == 0:
            store.snapshot("main", step)
        name = ("main", "rival")[step % 2]
        store.report(store.request(name, "actor", 60.0).id, str(rng.choice(list("wdl"))))
        if step % 16 == 15:
            period = Periods(store).open("main", "learner", 60.0)
            Periods(store).progress(period, step * 100, 60.0)
            moments.append((list(store.events())[-1][0], store.load()))
    return store, moments


def test_a_replay_to_any_moment_equals_the_live_league_of_then(
    played: tuple[Store, list[tuple[str, LeagueState]]],
) -> None:
    store, moments = played
    for last, live in moments:
        then = replay.fold(replay.before(store.events(), last))
        assert live.differences(then) == []
    assert moments[0][1] != moments[-1][1]


def test_a_saved_stream_replays_to_the_same_league(
    played: tuple[Store, list[tuple[str, LeagueState]]], tmp_path: Path
) -> None:
    store, _ = played
    path = tmp_path / "league.jsonl"
    lines = [json.dumps({"id": entry, "fields": event}) + "\n" for entry, event in store.events()]
    path.write_text("".join(lines) + lines[-1][:10])
    assert store.load().differences(replay.fold(replay.read_file(path))) == []
    path.write_text(lines[0] + "{broken\n" + lines[1])
    with pytest.raises(LeagueError, match="line 2 is not JSON"):
        replay.fold(replay.read_file(path))


def test_a_checkpoint_of_an_older_version_whose_payoff_is_in_base_85_is_read(
    played: tuple[Store, list[tuple[str, LeagueState]]],
) -> None:
    live = played[0].load()
    league = json.loads(live.checkpoint())
    league["payoff"] = base64.b85encode(base64.b64decode(league.pop("payoff64"))).decode()
    for given in (live.checkpoint(), json.dumps(league)):
        assert live.differences(replay.fold([("1-0", {"event": "checkpoint", "league": given})])) == []


def test_a_history_is_likelier_under_its_own_matchmaker_than_under_another(
    played: tuple[Store, list[tuple[str, LeagueState]]],
) -> None:
    store, _ = played
    same = replay.through(store.events(), kind_of("pfsp", {"weighting": "variance"}), ["main"])["main"]
    other = replay.through(store.events(), kind_of("self_play"), ["main"])["main"]
    assert same.matches == other.matches == 40
    assert sum(same.expected.values()) == pytest.approx(40.0)
    assert same.distance < 0.25 < other.distance == 1.0
    assert other.expected == {"main": pytest.approx(40.0)} and other.likelihood == 0.0 < same.likelihood


def test_an_unknown_player_of_a_long_history_is_refused_with_those_who_learn() -> None:
    events: list[Event] = []
    league = MemoryLeague(on_event=lambda event: events.append(dict(event)))
    league.add_player("main", "self_play")
    for step in range(25):
        league.snapshot("main", step)
    with pytest.raises(PlayerError, match=r"^player 'nobody' does not exist in this league; learning there: main$"):
        replay.through([("", event) for event in events], kind_of("self_play"), ["nobody"])


def test_the_other_matchmaker_sees_the_league_of_each_moment(
    played: tuple[Store, list[tuple[str, LeagueState]]],
) -> None:
    store, _ = played
    kind, expected, state = kind_of("softmax"), np.zeros(10), LeagueState()
    for _, event in store.events():
        if event["event"] == "issued" and event["home"] == "rival":
            found = distribution(kind, state, state.players["rival"])
            expected[: len(found)] += found
        state.apply(event)
    comparison = replay.through(store.events(), kind, ["rival"])["rival"]
    for name, games in comparison.expected.items():
        assert games == pytest.approx(expected[state.players[name].slot])


def test_moments_are_ids_milliseconds_or_dates() -> None:
    assert replay.until_id("1700000000000-3") == "1700000000000-3"
    assert replay.until_id("1700000000000") == "1700000000000"
    assert replay.until_id("2026-05-04T12:00") == replay.until_id("2026-05-04T14:00+02:00") == "1777896000000"
    with pytest.raises(LeagueError, match="'soon' is not a moment"):
        replay.until_id("soon")


def test_an_event_of_a_later_version_is_refused() -> None:
    with pytest.raises(LeagueError, match="'teleported' that this version does not know"):
        replay.fold([("1-0", {"event": "teleported"})])


def test_the_command_prints_standings_and_that_the_live_league_is_equal(
    played: tuple[Store, list[tuple[str, LeagueState]]],
    redis_url: str,
    run_name: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = ["--redis", redis_url, "--run", run_name]
    assert replay_command.main(source) == 0
    out = capsys.readouterr().out
    (row,) = [line.split() for line in out.splitlines() if line.startswith("main@0 ")]
    assert row[:3] == ["main@0", "pfsp", "frozen"] and "equal to the live league" in out
    store, _ = played
    # A cell changed behind the league's back is found.
    store.redis.setrange(f"{store.prefix}payoff:0", 24, b"\x01")
    assert replay_command.main(source) == 1
    assert "payoff: cell (0, 1)" in capsys.readouterr().out


def test_the_command_reads_a_saved_league_from_its_folder_or_the_runs(
    played: tuple[Store, list[tuple[str, LeagueState]]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "league"
    folder.mkdir()
    lines = [json.dumps({"id": entry, "fields": event}) + "\n" for entry, event in played[0].events()]
    (folder / "league.jsonl").write_text("".join(lines))
    for file in (folder / "league.jsonl", folder, tmp_path):
        assert replay_command.main(["--file", str(file)]) == 0
        assert "main@0" in capsys.readouterr().out
    for file in (tmp_path / "absent", tmp_path / "league" / "models"):
        assert replay_command.main(["--file", str(file)]) == 2
        assert "there is no league.jsonl; name a run folder" in capsys.readouterr().err


def test_the_command_reads_a_folder_with_its_history(
    played: tuple[Store, list[tuple[str, LeagueState]]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, moments = played
    folder = tmp_path / "league"
    (folder / "history").mkdir(parents=True)
    lines = [json.dumps({"id": entry, "fields": event}) + "\n" for entry, event in store.events()]
    older, newer = lines[: len(lines) // 2], lines[len(lines) // 2 :]
    last = json.loads(older[-1])["id"]
    checkpoint = {"event": "checkpoint", "league": replay.fold(replay.before(store.events(), last)).checkpoint()}
    (folder / "league.jsonl").write_text(json.dumps({"id": last, "fields": checkpoint}) + "\n" + "".join(newer))
    with gzip.open(folder / "history" / f"{json.loads(lines[0])['id']}.{len(older)}.jsonl.gz", "wt") as file:
        file.writelines(older)

    # A kept moment before the newest file, with both ways to name the folder.
    then = sum(player.frozen for player in moments[0][1].players.values())
    for path in (folder, tmp_path):
        assert replay_command.main(["--file", str(path), "--until", moments[0][0], "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)
        assert sum(row["state"] == "frozen" for row in rows) == then < 4
    # Every match, not only those of the newest file.
    assert replay_command.main(["--file", str(folder), "--through", "pfsp", "--player", "main", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["matches"] == 40
    # If the file is named, it alone is read.
    assert replay_command.main(["--file", str(folder / "league.jsonl"), "--until", moments[0][0]]) == 2
    assert "the history that is kept begins with" in capsys.readouterr().err


@pytest.mark.parametrize("damage", ["cut", "garbage", "no id", "no event"])
def test_a_damaged_saved_league_is_named_in_one_line(
    played: tuple[Store, list[tuple[str, LeagueState]]],
    tmp_path: Path,
    damage: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = [json.dumps({"id": entry, "fields": event}) + "\n" for entry, event in played[0].events()]
    segment = tmp_path / "history" / f"{json.loads(lines[0])['id']}.{len(lines)}.jsonl.gz"
    segment.parent.mkdir()
    (tmp_path / "league.jsonl").write_text("")
    added = {"no id": '{"a": 1}\n', "no event": '{"id": "9-0", "fields": {}}\n'}.get(damage, "")
    whole = gzip.compress("".join([*lines, added]).encode())
    segment.write_bytes({"cut": whole[:-50], "garbage": b"garbage" + whole}.get(damage, whole))
    assert replay_command.main(["--file", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {segment}") and "restore the file from a backup" in line


@pytest.mark.parametrize("damage", ["player missing", "field missing", "no number", "no id"])
def test_an_event_that_does_not_fit_is_named_by_every_reader(
    played: tuple[Store, list[tuple[str, LeagueState]]], damage: str
) -> None:
    entries = [(entry, dict(event)) for entry, event in played[0].events()]
    added, ended = (next(at for at, (_, e) in enumerate(entries) if e["event"] == kind) for kind in ("added", "ended"))
    if damage == "player missing":
        del entries[added]
    elif damage == "field missing":
        del entries[ended][1]["as"]
    elif damage == "no number":
        entries[ended][1]["home_elo"] = "many"
    else:
        entries[added] = ("damaged", entries[added][1])
    with pytest.raises(LeagueError, match=r"^event .* restore the stream from a backup$"):
        History().take(entries)
    if damage != "no id":  # a fold of the state needs none
        with pytest.raises(LeagueError, match=r"^event .* restore the stream from a backup$"):
            replay.fold(entries, Skills())


def test_the_command_prints_progress_if_it_takes_long(
    played: tuple[Store, list[tuple[str, LeagueState]]],
    redis_url: str,
    run_name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(progress, "FIRST", 0.0)
    monkeypatch.setattr(progress, "EVERY", 0.0)
    assert replay_command.main(["--redis", redis_url, "--run", run_name]) == 0
    err = capsys.readouterr().err.splitlines()
    assert err == [f"{number:,} events" for number in range(1, played[0].stream_length() + 1)]


def test_the_command_compares_with_another_kind_and_explains_a_wrong_one(
    played: tuple[Store, list[tuple[str, LeagueState]]],
    redis_url: str,
    run_name: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = ["--redis", redis_url, "--run", run_name, "--json"]
    assert replay_command.main([*source, "--through", "pfsp", "--set", "self_share=0.5", "--player", "main"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["player"], row["matches"]) == ("main", 40)
    assert row["would_meet"]["main"] == pytest.approx(40 / 3, abs=0.1)  # half of the decisions
    assert replay_command.main([*source, "--through", "pfps"]) == 2
    assert "did you mean pfsp" in capsys.readouterr().err
    assert replay_command.main([*source, "--through", "pfsp", "--player", "main", "--player", "mian"]) == 2
    assert "player 'mian' does not exist; did you mean main" in capsys.readouterr().err
    assert replay_command.main(["--redis", redis_url, "--run", f"{run_name}x"]) == 2
    assert f"run with a league '{run_name}x' does not exist; did you mean" in capsys.readouterr().err
    assert replay_command.main(["--redis", "redis://127.0.0.1:1", "--run", "x"]) == 2
    assert "Redis does not answer" in capsys.readouterr().err


def test_folding_computes_skills_too(played: tuple[Store, list[tuple[str, LeagueState]]]) -> None:
    store, _ = played
    skills = Skills()
    state = replay.fold(store.events(), skills)
    assert state == folded(store)
    assert max(skill.sigma for skill in skills.skills.values()) < 25 / 3


@pytest.mark.parametrize("kind", sorted(name for name in KINDS if KINDS[name].needs_returns))
def test_kinds_that_need_returns_are_not_replayed(kind: str) -> None:
    with pytest.raises(LeagueError, match="returns, which are not part of the stream"):
        replay.through([], kind_of(kind))


def test_five_kinds_need_returns() -> None:
    needing = {name for name in KINDS if KINDS[name].needs_returns}
    assert needing >= {"psro", "pbt_psro", "champion", "best_response", "anytime_psro"}


class ByReturns(Kind):
    """A kind of one's own that does not say that it needs returns."""

    def branches(self, view: View, me: Player) -> Iterator[Branch]:
        rivals = view.roster.everyone
        yield Branch("returns", 1.0, lambda: weighted(rivals, view.empirical_game.matrix(rivals).mean(axis=1) + 99.0))


class ByLooks(Kind):
    """Another one, which asks evaluators for their looks."""

    def branches(self, view: View, me: Player) -> Iterator[Branch]:
        rivals = view.roster.everyone
        yield Branch("looks", 1.0, lambda: weighted(rivals, np.full(len(rivals), 1.0 + len(view.looks(me)))))


@pytest.mark.parametrize("kind", [ByReturns(), ByLooks()])
def test_own_kinds_that_read_returns_are_not_replayed_silently(kind: Kind) -> None:
    events: list[dict[str, str]] = []
    league = MemoryLeague(on_event=lambda event: events.append(dict(event)))
    league.add_player("main", "random")
    league.snapshot("main", 0)
    kept = [{"event": "checkpoint", "league": league.state.checkpoint()}]
    begins = len(events)
    league.report(league.request("main"), "w")
    for stream in (events, kept + events[begins:]):
        entries = [(f"{number}-0", event) for number, event in enumerate(stream, 1)]
        assert replay.through(entries, kind_of("random"))["main"].matches == 1
        with pytest.raises(LeagueError, match="returns, which are not part of the stream"):
            replay.through(entries, kind)
