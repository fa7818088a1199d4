"""`python -m workers.imitate`: a policy cloned from recorded games, in one process and without servers.

python -m workers.play runs/cartpole --games 200 --record cartpole.safetensors
python -m workers.imitate project=clones imitation.data=cartpole.safetensors
python -m workers.imitate experiment=kuhn project=clones imitation.data=runs/kuhn/TRIAL      # a league's replays
"""

from __future__ import annotations

from workers.config.command_line import command


def main() -> None:
    """Run the command line."""
    from workers.imitation.run import run

    command("imitate", run)()


if __name__ == "__main__":
    main()
