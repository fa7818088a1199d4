"""All parameters of a network as one tensor: results stay the same."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from agents.algorithms.flat_parameters import FlatParameters
from warren.errors import ConfigurationError


def network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def learn_alike(one_by_one: nn.Module, together: nn.Module, flat: FlatParameters, shape: tuple[int, ...]) -> None:
    """Make five steps of Adam, by parameters and by `flat`; check that norms and weights are equal."""
    theirs = torch.optim.Adam(one_by_one.parameters(), 0.01, eps=1e-5)
    ours = torch.optim.Adam([flat.values], 0.01, eps=1e-5)
    for step in range(5):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(step))
        theirs.zero_grad()
        flat.gradient.zero_()
        for module in (one_by_one, together):
            module(x).square().mean().backward()
        norm = nn.utils.clip_grad_norm_(one_by_one.parameters(), 100.0)
        torch.testing.assert_close(torch.linalg.vector_norm(flat.gradient), norm)
        theirs.step()
        ours.step()
    for mine, its in zip(together.parameters(), one_by_one.parameters(), strict=True):
        torch.testing.assert_close(mine, its)


def test_adam_and_the_gradient_norm_equal_those_of_separate_parameters() -> None:
    one_by_one, together = network(), network()
    learn_alike(one_by_one, together, FlatParameters(together), (16, 4))


def test_names_shapes_and_values_stay_and_weights_are_loaded_in_place() -> None:
    module, other = network(), network()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    flat = FlatParameters(module)
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert {name: part.shape for name, part in flat.split(flat.values)} == {
        name: tensor.shape for name, tensor in before.items()
    }
    with torch.no_grad():
        other[0].weight.fill_(7)
    module.load_state_dict(other.state_dict())
    assert (flat.values[:32] == 7).all()
    twin = copy.deepcopy(module)
    with torch.no_grad():
        flat.values.zero_()
    assert not module[0].weight.any() and (twin[0].weight == 7).all()


def test_a_parameter_of_another_dtype_is_named() -> None:
    module = network()
    module[2].to(torch.float64)
    with pytest.raises(ConfigurationError, match=r"parameter 2.weight is torch.float64 on cpu, 0.weight torch.float32"):
        FlatParameters(module)


class Two(nn.Module):
    """A network with recurrent layers between linear ones, at unaligned offsets."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first = nn.Linear(3, 5)
        self.lstm = nn.LSTM(5, 6)
        self.gru = nn.GRU(6, 7, num_layers=2)
        self.last = nn.Linear(7, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.last(self.gru(self.lstm(self.first(x))[0])[0])
        return out


def test_weights_of_a_recurrent_layer_are_contiguous_from_their_storages_start() -> None:
    module = Two()
    flat = FlatParameters(module)
    for layer in (module.lstm, module.gru):
        weights = sorted(layer.named_parameters(), key=lambda one: one[0].startswith("bias"))
        place = begin = layer.weight_ih_l0.untyped_storage().data_ptr()  # cuDNN expects all of them there
        assert (begin - flat.values.data_ptr()) % 512 == 0
        for _, weight in weights:
            assert weight.untyped_storage().data_ptr() == begin and weight.data_ptr() == place
            place += weight.nbytes
        assert all(one is other for one, other in zip(layer._flat_weights, layer.parameters(), strict=True))


def test_a_recurrent_network_learns_the_same_as_with_separate_parameters() -> None:
    one_by_one, together = Two(), Two()
    flat = FlatParameters(together)
    learn_alike(one_by_one, together, flat, (8, 4, 3))
    twin, others = copy.deepcopy(together), Two().state_dict()
    together.load_state_dict(others)
    name = "lstm.weight_hh_l0"
    assert torch.equal(dict(flat.split(flat.values))[name], others[name])
    assert not torch.equal(twin.state_dict()[name], others[name])


def test_a_module_that_does_not_learn_has_one_tensor_and_no_gradient() -> None:
    module = network().requires_grad_(False)
    flat = FlatParameters(module)
    assert not flat.values.requires_grad
    assert flat.values.grad is None
    assert all(parameter.grad is None and not parameter.requires_grad for parameter in module.parameters())
    with torch.no_grad():
        flat.values.fill_(2)
    assert all((parameter == 2).all() for parameter in module.parameters())
