"""`python -m workers.run FILE.yaml`: services and environments of your own, from one file, by one command.

python -m workers.run examples/dqn/dqn.yaml                       # all of it on this machine
python -m workers.run examples/dqn/dqn.yaml Actor.num=2 broker=private
python -m workers.run examples/dqn/hosts.yaml --host master       # a file with hosts: this machine's share of it

The file lists `services` and `envs`, each with name, path and num; see run_file.py, or docs/services.md. It ends when
all environments have ended; Ctrl-C stops it cleanly.
"""

from __future__ import annotations

import sys

from warren import standard_streams
from workers.launch.kinds.services_run import main

if __name__ == "__main__":
    standard_streams.prepare()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.exit(main(__doc__))
