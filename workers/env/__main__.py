"""`python -m workers.env`: steps two groups of environments in turn, so that neither they nor the actors idle.

Started by the launcher where sampling=served, or by hand on any machine that reaches the servers:
`python -m workers.env run=NAME`, with WARREN_BROKER_URL and WARREN_REDIS_URL in the environment.
"""

from __future__ import annotations

from workers.config.command_line import role

if __name__ == "__main__":
    role("env")()
