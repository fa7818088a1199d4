"""`python -m workers.learner`: trains one player on the segments that arrive, and publishes each new version.

Started by the launcher, or by hand on any machine that reaches the servers:
`python -m workers.learner run=NAME trial=TRIAL`, with WARREN_BROKER_URL and WARREN_REDIS_URL in the environment (on
the command line everybody on the machine could read their passwords).
"""

from __future__ import annotations

from workers.config.command_line import role

if __name__ == "__main__":
    role("learner")()
