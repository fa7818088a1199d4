"""Networks: outputs for observations of every space, and the look-up of a user's own network."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from hypothesis import given, settings
from hypothesis import strategies as st

from agents import build_policy
from agents.networks import NETWORKS, Heads, build_network
from agents.networks.flat import Flat
from agents.spaces import SpaceTree
from warren.errors import ConfigurationError, UnknownName
from warren.trees import map_tree

PIXELS = Box(0, 255, (3, 40, 36), np.uint8)
SPACES = {
    "vector": Box(-1, 1, (4,), np.float32),
    "number": Box(-1, 1, (), np.float32),
    "table": Box(-1, 1, (2, 3), np.float64),
    "discrete": Discrete(5, start=2),
    "multi_discrete": MultiDiscrete([3, 4], start=[0, -1]),
    "multi_binary": MultiBinary((2, 2)),
    "pixels": PIXELS,
    "pixels_last": Box(0, 255, (40, 36, 3), np.uint8),
    "grey_frames": Box(0, 255, (4, 40, 36), np.uint8),
    "colour_frames": Box(0, 255, (2, 40, 36, 3), np.uint8),
    "planes": Box(0, 1, (2, 40, 40), np.float32),
    "nested": Dict(
        {"eyes": Tuple([PIXELS, PIXELS]), "body": Dict({"speed": Box(-1, 1, (2,), np.float32)}), "on": Discrete(2)}
    ),
}
IMAGES = {"pixels", "pixels_last", "grey_frames", "colour_frames", "planes", "nested"}
CONFIGS = {
    "mlp": {"hidden_sizes": [5]},
    "nature_cnn": {"hidden_size": 6, "vector_hidden_size": 3},
    "impala_resnet": {"channels": [2, 3], "hidden_size": 6, "vector_hidden_size": 3},
    "board_resnet": {"channels": 2, "cell_features": 2, "hidden_size": 6, "vector_hidden_size": 3},
}


def batch(space, n, seed=0):
    space.seed(seed)
    samples = [space.sample() for _ in range(n)]
    tree = SpaceTree(space, "observation")
    if tree.bare:
        return np.stack(samples)
    flat = [tree.flatten(sample) for sample in samples]
    return tree.unflatten({name: np.stack([one[name] for one in flat]) for name in tree.leaves})


def test_every_network_is_tested_here():
    assert set(CONFIGS) == set(NETWORKS)


@pytest.mark.parametrize("core", [None, {"name": "gru", "size": 4}], ids=["feed-forward", "gru"])
@pytest.mark.parametrize("network", CONFIGS)
@pytest.mark.parametrize("space", SPACES)
def test_every_network_gives_the_right_shapes_and_types_for_every_space(space, network, core):
    config = {"name": network, **CONFIGS[network], "core": core}
    if network != "mlp" and space not in IMAGES:
        with pytest.raises(
            ConfigurationError, match=f"network '{network}' takes observations with an image .* has none"
        ):
            build_policy(config, SPACES[space], Discrete(3), seed=1)
        return
    policy = build_policy(config, SPACES[space], Discrete(3), seed=1)
    acted = policy.step(batch(SPACES[space], 3))
    assert (acted.action.shape, acted.action.dtype) == ((3,), np.int64)
    assert {name: (a.shape, a.dtype) for name, a in acted.extras.items()} == {
        "log_prob": ((3,), np.float32),
        "value": ((3,), np.float32),
    }
    assert {name: tuple(part.shape[1:]) for name, part in acted.memory.items()} == policy.network.memory
    assert np.isfinite(acted.extras["value"]).all()


@pytest.mark.parametrize("network", CONFIGS)
def test_a_seed_repeats_the_weights_whatever_torchs_global_generator_did(network):
    weights = []
    for seed in (1, 1, 2):
        torch.rand(1)
        before = torch.get_rng_state()
        config = {"name": network, **CONFIGS[network], "core": {"name": "lstm", "size": 3}}
        policy = build_policy(config, SPACES["nested"], Discrete(2), seed)
        assert torch.equal(torch.get_rng_state(), before)
        weights.append(torch.cat([part.flatten() for part in policy.state_dict().values()]))
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize("network", ["nature_cnn", "impala_resnet", "board_resnet"])
def test_the_layout_of_an_image_does_not_change_its_value(network):
    config = {"name": network, **CONFIGS[network]}
    image = batch(PIXELS, 2)
    first, last, framed = (
        build_policy(config, space, Discrete(2), seed=1)
        for space in (PIXELS, SPACES["pixels_last"], Box(0, 255, (3, 40, 36, 1), np.uint8))
    )
    expected = first.value(image)
    np.testing.assert_allclose(last.value(image.transpose(0, 2, 3, 1)), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(framed.value(image[..., None]), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("network", CONFIGS)
def test_images_of_bytes_are_divided_by_divide_images_by(network):
    config = {"name": network, **CONFIGS[network]}
    ours, theirs = (build_policy({**config, "divide_images_by": by}, PIXELS, Discrete(3), 1) for by in (10.0, 255.0))
    image = np.full((2, *PIXELS.shape), 10, np.uint8)
    np.testing.assert_allclose(ours.value(image), theirs.value(image * 25 + 5), rtol=1e-4, atol=1e-6)
    with pytest.raises(ConfigurationError, match="divide_images_by=10 of the network: it divides no images"):
        build_policy({"divide_images_by": 10.0}, Box(-1, 1, (3,), np.float32), Discrete(3), 1)


@pytest.mark.parametrize("network", CONFIGS)
def test_images_of_bytes_are_divided_by_255_by_default(network):
    config = {"name": network, **CONFIGS[network]}
    image = batch(PIXELS, 2)
    of_bytes = build_policy(config, PIXELS, Discrete(2), seed=1)
    of_numbers = build_policy(config, Box(0, 1, PIXELS.shape, np.float32), Discrete(2), seed=1)
    np.testing.assert_allclose(of_bytes.value(image), of_numbers.value(image / np.float32(255)), rtol=1e-4, atol=1e-6)


def test_the_nature_network_has_the_sizes_of_the_paper():
    policy = build_policy({"name": "nature_cnn"}, Box(0, 255, (4, 84, 84), np.uint8), Discrete(6), seed=1)
    trunk = policy.network.trunks["shared"]
    sizes = [tuple(p.shape) for p in trunk.parameters() if p.dim() > 1]
    assert sizes == [(32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3), (512, 3136)]
    # Stable-Baselines3's CnnPolicy of the same spaces, and CleanRL's ppo_atari.py.
    assert sum(parameter.numel() for parameter in policy.parameters()) == 1_687_719
    dense = trunk.encoder.images[0].linear.weight
    torch.testing.assert_close(dense @ dense.T, 2 * torch.eye(512), rtol=0, atol=1e-4)


def test_convolutions_of_the_nature_network_can_be_set():
    # Those of MinAtar's examples/dqn.py (Young & Tian 2019).
    config = {"name": "nature_cnn", "filters": [16], "kernels": [3], "strides": [1], "hidden_size": 128}
    policy = build_policy(config, Box(0, 1, (10, 10, 4), np.bool_), Discrete(3), seed=1)
    sizes = [tuple(p.shape) for p in policy.network.trunks["shared"].parameters()]
    assert sizes == [(16, 4, 3, 3), (16,), (128, 16 * 8 * 8), (128,)]
    board = np.random.default_rng(1).random((5, 10, 10, 4)) < 0.3
    assert len(np.unique(policy.value(board))) == 5
    with pytest.raises(ConfigurationError, match="of at least 3 x 3"):
        build_policy(config, Box(0, 1, (2, 2, 4), np.float32), Discrete(3), seed=1)
    deeper = {**config, "filters": [4, 5], "kernels": [3, 2], "strides": [2, 2]}  # of 5: 2, and of those 1
    policy = build_policy(deeper, Box(0, 1, (5, 5, 1), np.float32), Discrete(3), seed=1)
    assert policy.network.trunks["shared"].encoder.images[0].linear.in_features == 5
    with pytest.raises(ConfigurationError, match="of at least 5 x 5"):
        build_policy(deeper, Box(0, 1, (4, 4, 1), np.float32), Discrete(3), seed=1)


def test_the_impala_network_has_the_sizes_of_the_paper():
    policy = build_policy({"name": "impala_resnet"}, Box(0, 255, (84, 84, 4), np.uint8), Discrete(6), seed=1)
    trunk = policy.network.trunks["shared"]
    sizes = [tuple(p.shape) for p in trunk.parameters() if p.dim() > 1]
    convolutions = [size for size in sizes if len(size) == 4]
    assert len(convolutions) == 15 and {size[2:] for size in convolutions} == {(3, 3)}
    assert [size[0] for size in convolutions] == [16] * 5 + [32] * 10
    assert sizes[-1] == (256, 11 * 11 * 32)
    wide = build_policy({"name": "impala_resnet", "width": 2}, Box(0, 255, (84, 84, 4), np.uint8), Discrete(6), seed=1)
    assert wide.network.trunks["shared"].encoder.images[0].linear.weight.shape == (256, 11 * 11 * 64)


@pytest.mark.parametrize("shape", [(3, 6, 7), (2, 3, 3), (1, 1, 1), (3, 6, 7, 2)])
def test_a_board_network_keeps_features_of_every_cell(shape):
    settings = {"channels": 5, "blocks": 2, "cell_features": 3, "hidden_size": 7, "planes": "first"}
    policy = build_policy({"name": "board_resnet", **settings}, Box(0, 1, shape[-4:], np.float32), Discrete(7), seed=1)
    encoder = policy.network.trunks["shared"].encoder
    board = torch.rand(4, *shape)
    features = encoder(board)
    rows, columns = shape[-2:]
    assert features.shape == (4, 3 * rows * columns + 7) and encoder.size == features.shape[1]
    policy.evaluate(board, torch.zeros(4, dtype=torch.int64)).log_prob.sum().backward()
    policy.evaluate(board, torch.zeros(4, dtype=torch.int64)).value.sum().backward()
    assert all(parameter.grad is not None for parameter in policy.parameters())


def test_a_feature_of_a_cell_sees_as_far_as_the_blocks_reach():
    space = Box(0, 1, (1, 15, 15), np.float32)
    for blocks, reach in ((0, 1), (1, 3), (2, 5)):
        config = {"name": "board_resnet", "channels": 8, "blocks": blocks, "cell_features": 4, "hidden_size": 1}
        # A seed, since on some boards none of the middle's features is above 0.
        board = torch.rand(1, 1, 15, 15, generator=torch.Generator().manual_seed(1)).requires_grad_()
        encoder = build_policy(config, space, Discrete(2), seed=1).network.trunks["shared"].encoder
        of_the_middle = encoder(board)[0, : 4 * 15 * 15].view(4, 15, 15)[:, 7, 7].sum()
        (gradient,) = torch.autograd.grad(of_the_middle, board)
        seen = gradient[0, 0].nonzero()
        assert (seen.min(), seen.max()) == (7 - reach, 7 + reach)


@pytest.mark.parametrize(
    ("shape", "suggested"),
    [((3, 6, 7), 3), ((6, 7, 2), 2), ((20, 8, 8), 20), ((8, 8, 111), 111), ((3, 3, 3), 3), ((6, 6, 7), 7)],
)
def test_the_axis_of_a_boards_planes_is_guessed_from_its_shape_or_set(shape, suggested):
    config = {"name": "board_resnet", **CONFIGS["board_resnet"]}
    for where, planes in ((None, suggested), ("first", shape[0]), ("last", shape[-1])):
        policy = build_policy({**config, "planes": where}, Box(0, 1, shape, np.float32), Discrete(2), seed=1)
        assert policy.network.trunks["shared"].encoder.images[0].convolutions[0].in_channels == planes
        assert np.isfinite(policy.value(np.ones((2, *shape), np.float32))).all()


@pytest.mark.parametrize("network", CONFIGS)
@pytest.mark.parametrize("shared", [True, False])
def test_policy_and_value_share_a_trunk_or_nothing(network, shared):
    policy = build_policy({"name": network, **CONFIGS[network], "shared": shared}, PIXELS, Discrete(2), seed=1)
    evaluated = policy.evaluate(torch.from_numpy(batch(PIXELS, 2)), torch.zeros(2, dtype=torch.int64))
    evaluated.value.sum().backward()
    touched = {name for name, parameter in policy.named_parameters() if parameter.grad is not None}
    evaluated = policy.evaluate(torch.from_numpy(batch(PIXELS, 2)), torch.zeros(2, dtype=torch.int64))
    policy.zero_grad()
    evaluated.log_prob.sum().backward()
    also = {name for name, parameter in policy.named_parameters() if parameter.grad is not None}
    assert bool(touched & also) == shared


def test_a_copied_network_acts_by_its_own_weights():
    policy = build_policy({"core": {"name": "lstm", "size": 4}}, SPACES["nested"], Discrete(2), seed=1)
    twin, observation = copy.deepcopy(policy), batch(SPACES["nested"], 2)
    np.testing.assert_array_equal(twin.value(observation), policy.value(observation))
    for parameter in twin.parameters():
        parameter.data.zero_()
    assert policy.value(observation).any() and not twin.value(observation).any()


def test_whole_numbers_become_one_hot():
    tree = SpaceTree(
        Dict({"a": Discrete(3, start=-1), "b": MultiDiscrete([[2, 3]]), "c": MultiBinary(2)}), "observation"
    )
    flat = Flat(tree, "network 'mlp'")
    value = {"a": np.array([-1, 1]), "b": np.array([[[0, 2]], [[1, 0]]]), "c": np.array([[0, 1], [1, 1]], np.int8)}
    found = flat(tree.tensors(value, torch.device("cpu")))
    np.testing.assert_array_equal(found, [[1, 0, 0, 1, 0, 0, 0, 1, 0, 1], [0, 0, 1, 0, 1, 1, 0, 0, 1, 1]])
    with pytest.raises(ConfigurationError, match="takes Discrete observations of at most 4096 values, 'a' is"):
        Flat(SpaceTree(Dict({"a": Discrete(5000)}), "observation"), "network 'mlp'")


@pytest.mark.parametrize(
    ("config", "space", "message"),
    [
        (
            {"name": "nature_cnn"},
            Box(0, 255, (3, 20, 20), np.uint8),
            r"of at least 36 x 36, .* is 20 x 20 .*impala_resnet",
        ),
        ({"name": "nature_cnn", "hidden_size": 0}, PIXELS, "hidden_size=0 of network 'nature_cnn' must be at least 1"),
        (
            {"name": "nature_cnn", "filters": [16]},
            PIXELS,
            r"filters=\[16\], kernels=\[8, 4, 3\], strides=\[4, 2, 1\] of .* must have one number of at least 1",
        ),
        ({"name": "nature_cnn", "kernels": [8, 0, 3]}, PIXELS, r"kernels=\[8, 0, 3\].* one number of at least 1"),
        ({"name": "impala_resnet", "channels": []}, PIXELS, r"channels=\[\] of network 'impala_resnet' must be"),
        ({"name": "impala_resnet", "widht": 2}, PIXELS, r"'widht' does not exist; did you mean width\?"),
        ({"name": "board_resnet", "blocks": -1}, PIXELS, "blocks=-1 of network 'board_resnet' must be at least 0"),
        ({"name": "board_resnet", "cell_features": 0}, PIXELS, "cell_features=0 of network 'board_resnet' must be"),
        ({"name": "board_resnet", "planes": "middle"}, PIXELS, "planes='middle' of .* must be 'first' .* or null"),
        ({"core": "lstm"}, PIXELS, "setting 'core' of network 'mlp' must be a table or null, is 'lstm'"),
    ],
)
def test_an_unsuitable_network_is_refused_with_the_reason(config, space, message):
    with pytest.raises(ConfigurationError, match=message):
        build_policy(config, space, Discrete(2), seed=1)


leaf_spaces = st.one_of(
    st.integers(1, 4).map(lambda n: Box(-1, 1, (n,), np.float32)),
    st.integers(1, 5).map(Discrete),
    st.lists(st.integers(1, 4), min_size=1, max_size=3).map(MultiDiscrete),
    st.integers(1, 4).map(MultiBinary),
)
nested_spaces = st.recursive(
    leaf_spaces,
    lambda inner: st.one_of(
        st.dictionaries(st.text("ab./ ", max_size=3), inner, min_size=1, max_size=3).map(Dict),
        st.lists(inner, min_size=1, max_size=3).map(Tuple),
    ),
    max_leaves=5,
)


@given(observation=nested_spaces, action=nested_spaces, seed=st.integers(0, 9))
@settings(max_examples=40, deadline=None)
def test_a_policy_of_any_two_spaces_acts_within_them(observation, action, seed):
    try:
        policy = build_policy({"hidden_sizes": [3], "policy_gain": 1.0}, observation, action, seed)
    except ConfigurationError as error:  # two paths with one name: {"a/b": ...} and {"a": {"b": ...}}
        assert "none twice under one name" in str(error)
        return
    n = 3
    seen = batch(observation, n, seed)
    acted = policy.step(seen)
    taken = policy.env_action(acted.action)
    for i in range(n):
        one = map_tree(lambda leaf, i=i: leaf[i], taken)
        assert action.contains(one), (action, one)
    tensors = SpaceTree(observation, "observation").tensors(seen, torch.device("cpu"))
    evaluated = policy.evaluate(tensors, map_tree(torch.from_numpy, acted.action))
    np.testing.assert_allclose(evaluated.log_prob.detach(), acted.extras["log_prob"], rtol=1e-4, atol=1e-4)


@given(space=nested_spaces, seed=st.integers(0, 9))
@settings(max_examples=40, deadline=None)
def test_unflatten_inverts_flatten(space, seed):
    try:
        tree = SpaceTree(space, "observation")
    except ConfigurationError:
        return
    space.seed(seed)
    value = space.sample()
    again = tree.unflatten(tree.flatten(value))
    assert space.contains(again)
    leaves, leaves_again = tree.flatten(value), tree.flatten(again)
    for name in tree.leaves:
        np.testing.assert_array_equal(*((leaves, leaves_again) if tree.bare else (leaves[name], leaves_again[name])))


OWN = """
import torch
from agents.networks import Network, Outputs


class Linear(Network):
    def __init__(self, inputs, heads, scale):
        super().__init__()
        self.heads, self.scale = heads, scale
        self.layer = torch.nn.Linear(inputs, heads.policy + heads.values)

    def step(self, observation, memory):
        both = self.layer(observation * self.scale)
        return self.heads.outputs(both[..., : self.heads.policy], both[..., self.heads.policy :]), memory


def build(settings, observation_space, heads, generator):
    return Linear(observation_space.shape[0], heads, settings["scale"])


def nothing(settings, observation_space, heads, generator):
    return torch.nn.Linear(1, 1)
"""


def test_a_network_can_come_from_a_users_file(tmp_path: Path):
    file = tmp_path / "mine.py"
    file.write_text(OWN)
    policy = build_policy({"name": f"{file}:build", "scale": 2.0}, SPACES["vector"], Discrete(3), seed=1)
    assert policy.step(np.zeros((2, 4), np.float32)).extras["value"].shape == (2,)
    assert policy.network.scale == 2.0
    with pytest.raises(
        ConfigurationError, match=r"network '.*mine.py:build' failed at .*mine.py:\d+: KeyError: 'scale'"
    ):
        build_policy({"name": f"{file}:build"}, SPACES["vector"], Discrete(3), seed=1)
    with pytest.raises(ConfigurationError, match=r"mine.py:nothing' made a Linear, not an agents.networks.Network"):
        build_policy({"name": f"{file}:nothing"}, SPACES["vector"], Discrete(3), seed=1)
    with pytest.raises(UnknownName, match=r"network 'biuld' does not exist; did you mean build\?"):
        build_policy({"name": f"{file}:biuld"}, SPACES["vector"], Discrete(3), seed=1)
    with pytest.raises(ConfigurationError, match="there is no file"):
        build_policy({"name": f"{tmp_path}/other.py:build"}, SPACES["vector"], Discrete(3), seed=1)


STEPS = """
import torch
from agents.networks import Network

class Faulty(Network):
    def __init__(self, heads):
        super().__init__()
        self.heads, self.layer = heads, torch.nn.Linear(4, heads.policy + heads.values)
    def step(self, observation, memory):
        x = self.layer(observation)
        policy, value = x[..., :self.heads.policy], x[..., self.heads.policy:]
        return FAULT

def build(settings, observation_space, heads, generator):
    return Faulty(heads)
"""


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("self.heads.outputs(x, value), memory", r"gave outputs of the policy of shape \[3, 4\]; it must be \[3, 3\]"),
        ("self.heads.outputs(policy, x), memory", r"gave values of shape \[3, 4\]; it must be \[3\]"),
        ("self.heads.outputs(policy, value)", r"gave an Outputs; it must give two values: self.heads.outputs\(policy"),
        ("(policy, value), memory", "gave a tuple; it must give two values"),
        ("None", "gave a NoneType; it must give two values"),
        ("1 / 0", r"failed at .*mine.py:12: ZeroDivisionError"),
    ],
)
def test_a_users_network_is_tried_when_it_is_built(fault: str, said: str, tmp_path: Path):
    file = tmp_path / "mine.py"
    file.write_text(STEPS.replace("FAULT", fault))
    with pytest.raises(ConfigurationError, match=rf"network '.*mine.py:build': step\(\) {said}"):
        build_policy({"name": f"{file}:build"}, SPACES["vector"], Discrete(3), seed=1)


LACKING = """
import torch
from agents.networks import Network

class Layered(Network):
    def __init__(self, heads):
        super().__init__()
        self.heads, self.layers = heads, LAYERS([torch.nn.Linear(4, heads.policy + heads.values)])

class Built(Layered):
    memory = MEMORY
    def METHOD(self, observation, memory):
        x = self.layers[0](observation)
        return self.heads.outputs(x[..., :self.heads.policy], x[..., self.heads.policy:]), KEPT
    UNROLL

def build(settings, observation_space, heads, generator):
    return Built(heads)
"""
UNROLL = "unroll = lambda self, observation, memory, begins: None"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"METHOD": "forward"}, r"made a Built without a method step\(observation, memory\); give it one"),
        ({"LAYERS": "list"}, r"made a Built without weights; keep its layers as attributes of self"),
        ({"MEMORY": "{'h': (8,)}"}, r"made a Built with a memory and without a method unroll\(observation"),
        (
            {"MEMORY": "{'h': (8,)}", "UNROLL": UNROLL, "KEPT": "{'h': x}"},
            r"step\(\) gave the memory 'h' of shape \[3, 4\]; it must be \[3, 8\], of the attribute memory",
        ),
        ({"MEMORY": "{'h': (8,)}", "UNROLL": UNROLL, "KEPT": "x"}, r"step\(\) gave the memory 'h' of shape none"),
    ],
)
def test_what_a_users_network_lacks_is_said_when_it_is_built(given: dict[str, str], said: str, tmp_path: Path):
    source = LACKING
    whole = {"METHOD": "step", "LAYERS": "torch.nn.ModuleList", "MEMORY": "{}", "UNROLL": "", "KEPT": "memory"}
    for word, code in (whole | given).items():
        source = source.replace(word, code)
    (file := tmp_path / "mine.py").write_text(source)
    with pytest.raises(ConfigurationError, match=rf"network '.*mine.py:build':? {said}"):
        build_policy({"name": f"{file}:build"}, SPACES["vector"], Discrete(3), seed=1)


@pytest.mark.parametrize("gain", [-1.0, np.nan, np.inf])
def test_a_gain_of_the_policy_that_is_no_factor_is_refused(gain: float):
    with pytest.raises(ConfigurationError, match=rf"policy_gain={gain} of network 'mlp' must be at least 0 and finite"):
        build_policy({"policy_gain": gain}, SPACES["vector"], Discrete(3), seed=1)


def test_heads_are_split_and_squeezed():
    heads = Heads({"move": 3, "aim": 2}, bare=False, values=2)
    network = build_network({"hidden_sizes": [4]}, SPACES["vector"], heads, torch.Generator().manual_seed(1))
    outputs, memory = network.step(torch.zeros(5, 4), {})
    assert {name: tuple(part.shape) for name, part in outputs.policy.items()} == {"move": (5, 3), "aim": (5, 2)}
    assert outputs.value.shape == (5, 2) and memory == {}
    outputs, _ = network.unroll(torch.zeros(7, 5, 4), {}, torch.zeros(7, 5, dtype=torch.bool))
    assert outputs.policy["aim"].shape == (7, 5, 2) and outputs.value.shape == (7, 5, 2)


@pytest.mark.parametrize("core", [None, {"name": "gru", "size": 8}])
def test_networks_of_action_values_are_initialized_like_pytorchs(core):
    def biases(**settings):
        config = {"hidden_sizes": [32, 32], "core": core, **settings}
        named = build_policy(config, Box(-1, 1, (4,), np.float32), Discrete(2), 1).state_dict().items()
        hidden = [name for name, tensor in named if name.endswith("bias") and len(tensor) == 32]
        return [tensor for name, tensor in named if name in hidden and "core" not in name]

    values = {"discrete_actions": {"greedy": True}, "value": False}
    first, second = biases(**values)
    assert 0.4 < first.abs().max() <= 0.5 and 0.1 < second.abs().max() <= 32**-0.5, "not within 1 / sqrt(inputs)"
    assert not any(bias.any() for bias in biases() + biases(initialization="orthogonal", **values))
    assert all(bias.any() for bias in biases(initialization="uniform"))
    with pytest.raises(ConfigurationError, match="initialization 'unifrom'"):
        biases(initialization="unifrom")

    def head(**settings):
        state = build_policy({**values, "core": core, **settings}, Box(-1, 1, (4,), np.float32), Discrete(2), 1)
        weight, bias = [part for part in state.state_dict().values() if part.shape[0] == 2][-2:]
        return weight, bias

    weight, bias = head()
    assert 0.7 < weight.abs().max() * weight.shape[1] ** 0.5 <= 1 and bias.any(), "not within 1 / sqrt(inputs)"
    weight, bias = head(policy_gain=3.0)
    torch.testing.assert_close(weight @ weight.T, 9 * torch.eye(2))
    assert not bias.any()
