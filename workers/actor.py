"""`python -m workers.actor`: plays, and sends its experience to the learner.

Gathered: it answers rollout tasks, one a round. Streaming: it plays on with the newest weights it has and sends a
segment whenever one is full. Served: it decides for env runners (`python -m workers.env`), which step the environments.
Started by the launcher, or by hand on any machine that reaches the servers:
`python -m workers.actor run=NAME actor_id=7`, with WARREN_BROKER_URL and WARREN_REDIS_URL in the environment (on the
command line everybody on the machine could read their passwords).
"""

from __future__ import annotations

from workers.config.command_line import role
from workers.config.schema import Config, Sampling


def run(config: Config) -> int:
    """The actor of a plain run, or of a league; each loads only what it needs."""
    if config.sampling is Sampling.served and config.league is not None:
        from workers.leagues.served import run as run_served_league

        return run_served_league(config)
    if config.sampling is Sampling.served:
        from workers.rollout.served import run as run_served

        return run_served(config)
    if config.league is None:
        from workers.rollout.worker import run as run_plain

        return run_plain(config)
    from workers.leagues.actor import run_league

    return run_league(config)


if __name__ == "__main__":
    role("actor", run)()
