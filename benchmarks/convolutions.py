"""CPU time of the convolutions of an actor's step, beside the time that their operations take in a bare product.

`python -m benchmarks.convolutions [--rounds 100] [--rows 1 16 64]`: one thread, the lowest of all rounds. A network's
convolutions that take half of their time or more at the rate of a product of 1024 x 1024 leave compiled C little.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor, nn

from agents import build_policy
from benchmarks.apparatus.report import finish

Image = tuple[int, int, int]  # height, width, channels; as games give them
NETWORKS: Mapping[str, tuple[Mapping[str, Any], Image]] = {
    "nature_cnn, 84 x 84 x 4": ({"name": "nature_cnn"}, (84, 84, 4)),
    "board_resnet, Connect Four": ({"name": "board_resnet"}, (6, 7, 2)),
    "nature_cnn of MinAtar's Breakout": (
        {"name": "nature_cnn", "filters": [16], "kernels": [3], "strides": [1], "hidden_size": 128},
        (10, 10, 4),
    ),
}
SIDE = 1024  # of the product's matrices


def lowest(call: Callable[[], object], rounds: int) -> float:
    """Return the least CPU seconds of `rounds` calls."""
    took = []
    for _ in range(rounds):
        began = time.process_time()
        call()
        took.append(time.process_time() - began)
    return min(took)


def layers_of(network: Mapping[str, Any], image: Image, rows: int) -> list[tuple[nn.Conv2d, Tensor]]:
    """Return the convolutions that a step of `rows` images passes, each with its input [rows, channels, H, W]."""
    policy = build_policy(network, Box(0, 255, image, np.uint8), Discrete(6), 1)
    found: list[tuple[nn.Conv2d, Tensor]] = []
    hooks = [
        module.register_forward_hook(lambda layer, given, _: found.append((layer, given[0])))
        for module in policy.modules()
        if isinstance(module, nn.Conv2d)
    ]
    policy.value(np.zeros((rows, *image), np.uint8))
    for hook in hooks:
        hook.remove()
    return found


def operations(layer: nn.Conv2d, given: Tensor) -> int:
    """Return the additions and multiplications of one pass."""
    passed: Tensor = layer(given)
    return 2 * passed.numel() * layer.weight[0].numel()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100, help="passes of each layer")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 16, 64], help="images that are computed together")
    given = parser.parse_args()
    torch.set_num_threads(1)
    figures: dict[str, dict[int, dict[str, float]]] = {}
    with torch.inference_mode():
        matrix = torch.randn(SIDE, SIDE)
        rate = 2 * SIDE**3 / lowest(lambda: matrix @ matrix, 10)
        for name, (network, image) in NETWORKS.items():
            figures[name] = {}
            for rows in given.rows:
                layers = layers_of(network, image, rows)
                took = sum(lowest(lambda: layer(seen), given.rounds) for layer, seen in layers)  # noqa: B023
                share = sum(operations(*one) for one in layers) / rate / took
                figures[name][rows] = {"us": round(1e6 * took), "share_of_product": round(share, 2)}
                print(f"{name}, {rows} at once: {1e6 * took:.0f} us, {share:.2f} of a product's rate", flush=True)
    finish("convolutions", {"networks": figures})


if __name__ == "__main__":
    main()
