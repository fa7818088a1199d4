"""Test of the benchmark of convolutions."""

from __future__ import annotations

import torch

from benchmarks.convolutions import layers_of, operations


def test_each_convolution_is_measured_on_what_it_gets_in_a_step():
    network = {"name": "nature_cnn", "filters": [16, 8], "kernels": [3, 3], "strides": [1, 2]}
    with torch.inference_mode():
        layers = layers_of(network, (10, 9, 4), rows=5)
        assert [tuple(given.shape) for _, given in layers] == [(5, 4, 10, 9), (5, 16, 8, 7)]
        assert operations(*layers[0]) == 2 * 5 * (8 * 7 * 16) * (4 * 3 * 3)
        assert operations(*layers[1]) == 2 * 5 * (3 * 3 * 8) * (16 * 3 * 3)
    assert len(layers) == 2  # measuring adds none
