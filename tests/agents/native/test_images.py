"""Images of bytes, converted in C: equal to torch's to the last bit."""

from __future__ import annotations

import pytest
import torch
from gymnasium.spaces import Box
from torch import Tensor

from agents import build_policy
from agents.native import images, library

SHAPES = [(3, 1, 84, 84), (33, 4, 84, 84), (5, 3, 10, 13), (2, 2, 36, 36), (4, 7, 6, 7), (2, 12, 40, 41)]


def of_torch(x: Tensor, scale: float) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last).float() * scale


def orders(x: Tensor) -> dict[str, Tensor]:
    """Return the same images in the orders of memory that environments and batches give them."""
    wider = torch.zeros((*x.shape[:-1], x.shape[-1] + 3), dtype=torch.uint8)
    wider[..., : x.shape[-1]] = x
    return {
        "channels first": x,
        "channels last": x.movedim(1, -1).contiguous().movedim(-1, 1),
        "a part of a larger array": wider[..., : x.shape[-1]],
    }


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_scaled_images_are_torchs(shape: tuple[int, ...], threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "A_THREAD", 100)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    x = torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    x.flatten()[:256] = torch.arange(256, dtype=torch.uint8)[: x.numel()]
    for scale in (1 / 255, 1.0, 0.3):
        for order, given in orders(x).items():
            scaled = images.scaled_images(given, scale)
            assert scaled is not None
            assert scaled.is_contiguous(memory_format=torch.channels_last)
            assert torch.equal(scaled, of_torch(x, scale)), order
            with torch.autocast("cpu", torch.bfloat16):
                halves = images.scaled_images(given, scale)
            assert halves is not None
            assert torch.equal(halves, of_torch(x, scale).bfloat16()), order


@pytest.mark.parametrize(
    "x",
    [
        torch.zeros(2, 4, 36, 36),
        torch.zeros((0, 4, 36, 36), dtype=torch.uint8),
        torch.zeros((4, 36), dtype=torch.uint8),
    ],
    ids=["numbers", "none", "no images"],
)
def test_torch_converts_what_is_no_image_of_bytes(x: Tensor) -> None:
    assert images.scaled_images(x, 1 / 255) is None


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(4, 40, 40), (40, 40, 3), (2, 40, 40, 3)], ids=str)
def test_a_network_gives_the_same_outputs_and_gradients(shape: tuple[int, ...], precision: torch.dtype) -> None:
    space = Box(0, 255, shape, "uint8")
    found = []
    for choice in ("torch", "native"):
        library.choose(choice)
        torch.manual_seed(1)
        policy = build_policy({"name": "nature_cnn", "hidden_size": 32}, space, Box(-1, 1, (2,), "float32"), 1)
        policy.set_learning_precision(precision)
        observation = torch.randint(0, 256, (9, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(2))
        value = policy.outputs(observation).value
        value.sum().backward()
        found.append([value, *(one.grad for one in policy.network.parameters() if one.grad is not None)])
    assert len(found[0]) > 6
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
