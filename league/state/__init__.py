"""A league in memory: folded from its events, replayed to any moment, or run in this process alone.

Other packages use `league_state.LeagueState`, `history.History`, `replay.fold` and `in_memory.MemoryLeague`.
"""
