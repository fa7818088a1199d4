"""`python -m workers.export run=RUN --to FILE.onnx`: a trained policy as an ONNX model, verified against PyTorch.

python -m workers.export run=runs/cartpole --to cartpole.onnx
python -m workers.export run=runs/kuhn player=main@1200 int8=true --to kuhn.onnx
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from workers.config.command_line import guarded
from workers.config.name_value import parse, settings_text
from workers.models.export_settings import ExportConfig
from workers.models.model_file import write


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m workers.export", description=__doc__, epilog=settings_text(ExportConfig),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("settings", nargs="*", metavar="name=value", help="see below")
    parser.add_argument("--to", type=Path, required=True, metavar="FILE.onnx")
    options = parser.parse_args()

    def run() -> int:
        torch.set_num_threads(1)
        for line in write(parse(ExportConfig, options.settings), options.to):
            print(line)
        return 0

    return guarded(run)


if __name__ == "__main__":
    sys.exit(main())
