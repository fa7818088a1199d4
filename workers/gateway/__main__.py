"""`python -m workers.gateway`: games that drive themselves play by the run's policy, and are learned from.

Started by the launcher in the place of actors where env.id is gamecore:FILE.py:CLASS, or by hand on any machine that
reaches the servers: `python -m workers.gateway run=NAME`, with WARREN_BROKER_URL and WARREN_REDIS_URL in the
environment, and WARREN_GATEWAY_TOKEN where games have to show one.
"""

from __future__ import annotations

from workers.config.command_line import role

if __name__ == "__main__":
    role("gateway")()
