"""`python -m workers.deploy run=RUN`: serves a trained policy to games, over HTTP and TCP.

python -m workers.deploy run=runs/cartpole-gamecore                    # the newest run there, its own Actor, port 8000
python -m workers.deploy run=runs/cartpole backend=onnx follow=5       # JSON; newer checkpoints as they come
python -m workers.deploy run=runs/cartpole processes=4                 # four processes behind one port

More: docs/deploying.md.
"""

from __future__ import annotations

import sys

from workers.config.name_value import command
from workers.deployment.settings import DeployConfig


def run(config: DeployConfig) -> int:
    """Serve, by one process or several, until told to stop; return the exit status."""
    from workers.deployment import role, several  # need uvicorn, which the settings have checked by now

    return several.run(config) if config.processes > 1 else role.run(config)


def main() -> int:
    """Run the command line; return the exit status."""
    return command(__doc__, DeployConfig, run)


if __name__ == "__main__":
    sys.exit(main())
