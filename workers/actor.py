"""`python -m workers.actor`: plays, and sends its experience to the learner.

Gathered: it answers rollout tasks, one per round. Streaming: it plays on with the newest weights it has and sends a
segment whenever one is full. Served: it decides for env runners (`python -m workers.env`), which step the environments.
Started by the launcher, or by hand on any machine that reaches the servers:
`python -m workers.actor run=NAME`, with WARREN_BROKER_URL and WARREN_REDIS_URL in the environment (on the
command line everybody on the machine could read their passwords).
"""

from __future__ import annotations

from workers.config.command_line import role

if __name__ == "__main__":
    role("actor")()
