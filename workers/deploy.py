"""`python -m workers.deploy run=RUN`: serves a trained policy to games, over HTTP and TCP.

python -m workers.deploy run=runs/cartpole-gamecore                    # the newest run there, its own Actor, port 8000
python -m workers.deploy run=runs/cartpole backend=onnx follow=5       # JSON; newer checkpoints as they come
python -m workers.deploy run=runs/cartpole processes=4                 # four processes behind one port

Settings are those of DeployConfig in workers/deployment/settings.py; docs/deploying.md explains them.
"""

from __future__ import annotations

import sys

from workers.deployment import several
from workers.deployment.role import run
from workers.deployment.settings import DeployConfig, command


def main() -> int:
    """The command line."""
    return command(__doc__, DeployConfig, lambda config: (several.run if config.processes > 1 else run)(config))


if __name__ == "__main__":
    sys.exit(main())
