"""The scripts on Redis and `decide` are one rule: random commands make identical events, answers and leagues."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.store_fixtures import folded

from league.redis import scripts
from league.redis.reader import load
from league.redis.store import Store
from league.rules.settings import COUNT, DROP, Settings
from league.state import commands
from league.state.commands import Command
from league.state.decide import decide
from league.state.ended_matches import EndedMatches
from league.state.fields import to_json
from league.state.league_state import LeagueState

EXAMPLES = int(os.environ.get("WARREN_EXAMPLES", "200"))  # sequences of commands; 2,000 take some minutes
LENGTH = 30  # commands per sequence
KEPT_ENDED = 3
BEGAN = 1_700_000_000_000  # ms

PLAYERS = st.sampled_from(["main", "hunter", "left", "main@1", "main@2", "hunter@1", "nobody"])
LEARNERS = st.sampled_from(["main", "hunter", "left"])
MATCHES = st.sampled_from([f"m{number}" for number in range(6)])
LEASES = st.sampled_from([1, 50, 1000])
WORKERS = st.sampled_from(["a", "b"])
OUTCOMES = st.one_of(st.text("wdl", min_size=1, max_size=4), st.text("0123", min_size=3, max_size=8))
OTHERS = st.one_of(st.just(()), st.lists(PLAYERS, max_size=2).map(tuple))
MODELS = st.sampled_from(["main@1", "main@2", "hunter@1"])
VALUES = st.sampled_from([to_json({}), to_json({"lr": 0.1}), to_json({"lr": 3, "text": '\u00e4 "quoted"'})])
FIELDS = st.one_of(
    st.tuples(st.sampled_from(["paused", "frozen", "removed"]), st.sampled_from(["0", "1"])),
    st.tuples(st.sampled_from(["config", "rules", "hyperparameters"]), VALUES),
    st.tuples(st.sampled_from(["model", "initial"]), st.one_of(st.just(""), MODELS)),
    st.tuples(st.just("kind"), st.sampled_from(["self_play", "random"])),
)
CHANGES = st.lists(FIELDS, max_size=2).map(lambda pairs: tuple(item for pair in pairs for item in pair))

# Most commands are valid: a league in which nothing happens tests nothing.
MATCH_COMMANDS = (
    st.builds(commands.Issue, MATCHES, LEARNERS, PLAYERS, st.just("pfsp"), WORKERS, LEASES, OTHERS),
    st.builds(commands.Count, MATCHES, OUTCOMES, WORKERS),
    st.builds(commands.Abort, MATCHES, st.sampled_from(["actor", "model"]), WORKERS),
    st.builds(commands.Extend, MATCHES, LEASES),
    st.builds(commands.Expire, st.integers(0, 3)),
)
PERIOD_COMMANDS = (
    st.builds(commands.OpenPeriod, PLAYERS, WORKERS, LEASES),
    st.builds(commands.TellProgress, PLAYERS, st.integers(1, 3), WORKERS, st.integers(0, 99), LEASES),
    st.builds(
        commands.ClosePeriod,
        *(PLAYERS, st.integers(1, 3), WORKERS, st.integers(0, 99), MODELS, st.integers(0, 1), st.integers(0, 1)),
        *(st.one_of(st.just(""), PLAYERS), MODELS, VALUES, st.sampled_from(["", "too weak, by 3 %"]), WORKERS),
        st.lists(MODELS, max_size=3).map(tuple),
    ),
)
PLAYER_COMMANDS = (
    st.builds(
        commands.Add, LEARNERS, st.just("random"), VALUES, st.just(""), MODELS, st.just("0"), VALUES, VALUES, WORKERS
    ),
    st.builds(commands.Change, PLAYERS, WORKERS, CHANGES),
    st.builds(commands.TakeSnapshot, PLAYERS, MODELS, WORKERS),
)
COMMANDS = st.one_of(*MATCH_COMMANDS, *MATCH_COMMANDS, *PERIOD_COMMANDS, *PLAYER_COMMANDS)
STEPS = st.lists(st.tuples(COMMANDS, st.sampled_from([0, 0, 1, 60, 2000])), min_size=LENGTH, max_size=LENGTH)
SETTINGS = st.builds(
    Settings,
    decay=st.sampled_from([1.0, 0.97]),
    elo_k=st.sampled_from([16.0, 24.3]),
    on_reset=st.sampled_from([COUNT, DROP]),
    on_frozen=st.sampled_from([COUNT, DROP]),
    snapshots_inherit=st.booleans(),
)


@pytest.fixture(scope="module")
def set_clock(servers: Any) -> Iterator[redis.Redis]:
    """Yield a Redis whose scripts read their clock from the key PREFIXclock, and remember only three ended matches."""
    real = scripts.source.__wrapped__

    def source(name: str, library: str) -> str:
        text: str = real(name, library)
        start, end = text.index("local function now()"), text.index("local function whole")
        text = f"{text[:start]}local function now() return tonumber(redis.call('GET', P .. 'clock')) end\n{text[end:]}"
        return text.replace("KEPT_ENDED = 100000", f"KEPT_ENDED = {KEPT_ENDED}")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(scripts, "source", source)
        yield redis.Redis.from_url(servers.redis_url)


@given(SETTINGS, STEPS)
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_redis_and_memory_decide_alike(
    set_clock: redis.Redis, given: Settings, steps: list[tuple[Command, int]]
) -> None:
    store = Store(set_clock, f"test-rule-{secrets.token_hex(6)}:")
    store.create(given)
    state, now, events = LeagueState(ended=EndedMatches(KEPT_ENDED)), BEGAN, []
    for name in ("main", "hunter"):
        steps = [(commands.Add(name, "random", "{}", "", "", "0", "{}", "{}", "test"), 0), *steps]
    try:
        for created in store.events():
            state.apply(created[1])
            last = created[0]
        for command, passed in steps:
            now += passed
            set_clock.set(f"{store.prefix}clock", now)
            decided = decide(state, command, now)
            assert store.execute(command) == decided.answer, command
            made = list(store.events(after=last))
            assert [event for _, event in made] == decided.events, command
            last = made[-1][0] if made else last
            for event in decided.events:
                state.apply(event)
            events += decided.events
        assert load(store.scripts).differences(state) == [] == folded(store).differences(state)
    finally:
        keys = set_clock.keys(f"{store.prefix}*")
        set_clock.delete(*keys)


def test_every_script_that_changes_a_league_has_a_command() -> None:
    commanded = {kind.script for kind in Command.__subclasses__()}
    files = {path.stem for path in scripts.LUA.glob("*.lua")}
    apart = {"lib", "guard", "create", "dump", "returns_add", "cell_claim"}
    assert {name for name in files if not name.startswith("pool_")} - apart == commanded
