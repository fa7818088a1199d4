"""`python -m workers.league`: a league worker, which issues matches, counts results, and gives out learning periods.

It holds no state: any number of workers serve one league, which is in Redis (league/). The worker with `league_id=0`
also keeps the league's folder: it saves models and the event stream there, and brings back spilled models. When Redis
holds no league, it restores the one in the folder, or in `restore`.
"""

from __future__ import annotations

from workers.config.command_line import role

if __name__ == "__main__":
    role("league")()
