"""`python -m workers.failures [FOLDER]`: show why processes of a run failed or were restarted, also after its end.

python -m workers.failures                         # the newest run below runs/
python -m workers.failures runs/kuhn/TRIAL --said  # with the last lines that each process printed
python -m workers.failures runs/kuhn --of actor-   # actors alone; --json: for programs

The run's folder keeps them in failures.jsonl. Each host of a run keeps those of its own processes.
"""

from __future__ import annotations

import sys

from workers.launch.traces.failures import main

if __name__ == "__main__":
    sys.exit(main(__doc__))
