import numpy as np
import pyspiel
import pytest

from envs.game_tree import CHANCE, TERMINAL, TreeVectorEnv
from envs.games.openspiel_games import StateVectorEnv, load, make_two_player
from envs.games.openspiel_tree import expand, tree_size
from warren.errors import ConfigurationError, UnknownName

TREES = [
    ("kuhn_poker", {}),
    ("leduc_poker", {}),
    ("goofspiel", {"num_cards": 3, "points_order": "descending"}),
    ("goofspiel", {"num_cards": 3, "imp_info": True}),
    ("liars_dice", {"numdice": 1, "dice_sides": 3}),
    ("matrix_brps", {}),
]
STATES = [
    ("kuhn_poker", {}),
    ("leduc_poker", {}),
    ("connect_four", {}),
    ("tic_tac_toe", {}),
    ("breakthrough", {}),
    ("backgammon", {}),
    ("liars_dice", {}),
    ("goofspiel", {"num_cards": 5}),
    ("oshi_zumo", {"horizon": 20}),
    ("phantom_ttt", {}),
    ("universal_poker", {}),
    ("hex", {"board_size": 5}),
    ("dark_hex", {"board_size": 3}),
    ("markov_soccer", {"horizon": 30}),
]


def game_tree(name, parameters):
    tree = expand(load(name, **parameters), name, 100_000)
    assert tree is not None
    return tree


def tensor(state, informed):
    return state.information_state_tensor() if informed else state.observation_tensor()


def replay(game, history):
    state = game.new_initial_state()
    for action in history:
        state.apply_action(action)
    return state


def watch_ends(games):
    """Return a list that receives each ended game's whole history, whose last move may be chance's."""
    ends, past_chance = [], games._past_chance

    def watched(state, index):
        past_chance(state, index)
        if state.is_terminal():
            ends.append(state.history())

    games._past_chance = watched
    return ends


@pytest.mark.parametrize(
    ("name", "parameters", "kind"),
    [(*game, "tree") for game in TREES] + [(*game, "states") for game in STATES],
    ids=lambda value: str(value),
)
def test_random_play_agrees_with_openspiel_at_every_step(name, parameters, kind):
    game = load(name, **parameters)
    games = TreeVectorEnv(game_tree(name, parameters), 6, 0) if kind == "tree" else StateVectorEnv(game, name, 6, 0)
    informed = game.get_type().provides_information_state_tensor
    generator = np.random.default_rng(0)
    ends = watch_ends(games) if kind == "states" else None
    turn, ended = games.reset(), 0
    for _ in range(150):
        states = [replay(game, games.history(i)) for i in range(6)]
        for i, state in enumerate(states):
            assert turn.to_move[i] == state.current_player()
            assert np.flatnonzero(turn.action_mask[i]).tolist() == state.legal_actions()
            expected = np.asarray(tensor(state, informed), np.float32)
            assert np.array_equal(turn.observation[i].ravel(), expected)
        action = (generator.random(turn.action_mask.shape) * turn.action_mask).argmax(axis=1)
        turn = games.step(action)
        for i, state in enumerate(states):
            before = np.array(state.returns())
            state.apply_action(int(action[i]))
            if turn.done[i]:
                history = ends.pop(0) if ends is not None else state.history()
                ended += 1
            else:
                history = games.history(i)
            assert history[: len(state.history())] == state.history()
            state = replay(game, history)  # with chance's moves that followed
            assert state.is_terminal() == turn.done[i]
            assert np.allclose(turn.reward[i], np.array(state.returns()) - before)
    assert ended > 0


@pytest.mark.parametrize(("name", "parameters"), TREES, ids=lambda value: str(value))
def test_a_tree_equals_openspiels_whole_game_with_all_outcomes_of_chance(name, parameters):
    game, tree = load(name, **parameters), game_tree(name, parameters)
    informed = game.get_type().provides_information_state_tensor
    row, thresholds = tree.chance
    visited = 0
    queue = [(game.new_initial_state(), 0)]
    while queue:
        state, node = queue.pop()
        visited += 1
        assert tree.history(node) == state.history()
        assert tree.returns[node] == state.returns()[0]
        if state.is_terminal():
            assert tree.player[node] == TERMINAL
            continue
        if state.is_chance_node():
            assert tree.player[node] == CHANCE
            actions = [action for action, _ in state.chance_outcomes()]
            # The shares of [0, 1) that lead to each outcome are their probabilities.
            edges = np.clip(np.concatenate([[0], thresholds[row[node]], [1]]), 0, 1)
            shares = np.diff(edges)
            assert np.allclose(shares[: len(actions)], [p for _, p in state.chance_outcomes()], atol=1e-12)
            assert not shares[len(actions) :].any()
        else:
            actions = state.legal_actions()
            info = tree.information_state[node]
            assert tree.player[node] == tree.owner[info] == state.current_player()
            assert tree.labels[info] == state.information_state_string()
            assert np.flatnonzero(tree.action_mask[info]).tolist() == actions
            assert np.array_equal(tree.observation[info].ravel(), np.float32(tensor(state, informed)))
        queue += [(state.child(action), int(tree.first_child[node]) + k) for k, action in enumerate(actions)]
    assert visited == len(tree.player)
    assert sum(level.stop - level.start for level in tree.levels) == visited


@pytest.mark.parametrize("kind", ["tree", "states"])
def test_deals_follow_their_probabilities(kind):
    games = (
        TreeVectorEnv(game_tree("kuhn_poker", {}), 6000, 0)
        if kind == "tree"
        else StateVectorEnv(load("kuhn_poker"), "kuhn_poker", 6000, 0)
    )
    games.reset()
    deals = [tuple(games.history(i)) for i in range(6000)]
    counts = np.array([deals.count((a, b)) for a in range(3) for b in range(3) if a != b])
    assert counts.sum() == 6000
    assert (np.abs(counts - 1000) < 4 * np.sqrt(6000 * (1 / 6) * (5 / 6))).all()


def test_uneven_chance_is_drawn_by_its_weights():
    tree = game_tree("kuhn_poker", {})
    deal = tree.probability.copy()
    deal[1:4] = [0.7, 0.0, 0.3]  # the first card
    tree.__dict__["probability"] = deal
    games = TreeVectorEnv(tree, 5000, 0)
    games.reset()
    first = np.bincount([games.history(i)[0] for i in range(5000)], minlength=3)
    assert first[1] == 0
    assert abs(first[0] - 3500) < 4 * np.sqrt(5000 * 0.21)


def test_the_second_of_two_simultaneous_moves_is_made_without_seeing_the_first():
    games = make_two_player("goofspiel", 3, 0, num_cards=3, points_order="descending")
    assert games.reset().to_move.tolist() == [0, 0, 0]
    turn = games.step(np.array([0, 1, 2]))
    assert turn.to_move.tolist() == [1, 1, 1]
    assert (turn.observation == turn.observation[0]).all()


def test_small_games_are_played_on_trees_and_large_ones_on_states():
    assert isinstance(make_two_player("leduc_poker", 1, 0), TreeVectorEnv)
    assert isinstance(make_two_player("breakthrough", 1, 0), StateVectorEnv)
    assert tree_size(pyspiel.load_game("leduc_poker"), 20_000) == 0
    assert tree_size(pyspiel.load_game("connect_four"), 20_000) == np.inf
    assert expand(pyspiel.load_game("leduc_poker"), "leduc_poker", 9_457) is not None
    assert expand(pyspiel.load_game("leduc_poker"), "leduc_poker", 9_456) is None


def test_openspiels_notation_of_parameters_is_accepted():
    assert make_two_player("goofspiel(num_cards=3)", 1, 0).num_actions == 3


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("matrix_pd", {}, r"is not zero-sum \(general_sum\)"),
        ("kuhn_poker", {"cards": 3}, "Unknown parameter 'cards'"),
        ("kuhn_poker", {"players": "two"}, "Wrong type for parameter players"),
        ("2048", {}, "is for one player"),
        ("coordinated_mp", {}, "provides no tensor of observations"),
    ],
)
def test_a_game_no_league_can_play_is_refused_with_the_reason(name, parameters, message):
    with pytest.raises(ConfigurationError, match=message):
        make_two_player(name, 1, 0, **parameters)


def test_an_unknown_game_lists_near_names():
    with pytest.raises(UnknownName, match="did you mean openspiel:kuhn_poker"):
        make_two_player("kuhn_pokr", 1, 0)


@pytest.mark.slow
def test_every_game_of_openspiel_that_a_league_can_play_runs():
    played, refused = 0, 0
    for kind in pyspiel.registered_games():
        if not kind.default_loadable:
            continue
        try:
            games = make_two_player(kind.short_name, 2, 0)
        except ConfigurationError:
            refused += 1
            continue
        generator = np.random.default_rng(0)
        turn = games.reset()
        for _ in range(30):
            turn = games.step((generator.random(turn.action_mask.shape) * turn.action_mask).argmax(axis=1))
        played += 1
    assert played >= 50
    assert refused < played
