"""OpenSpiel's games of two players, zero-sum, or more: "openspiel:leduc_poker", "openspiel:kuhn_poker?players=3".

A small game is played on its whole tree, Connect Four in arrays, a larger one on OpenSpiel's own states. A game with
simultaneous moves is played in OpenSpiel's turn-based form.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from envs.construct import require
from envs.game_tree import GameTree, TreeVectorEnv
from envs.games.connect_four import COLUMNS, ROWS, ConnectFour
from envs.games.openspiel_tree import expand, tree_size
from envs.large.game import LargeGame
from envs.large.goofspiel import Goofspiel
from envs.large.liars_dice import LiarsDice
from envs.large.phantom import MOST_CELLS, dark_hex, phantom_ttt
from envs.sequence_form import SequenceForm
from envs.two_player.chance import Chance
from envs.two_player.vector_env import PLAYERS, Turn, TwoPlayerVectorEnv
from warren.errors import ConfigurationError, UnknownName

PLAYED_ON_TREE = 20_000  # most histories of a game that is played on its tree: a second to build, megabytes to hold
SOLVED_ON_TREE = 2_000_000  # most histories of a game that is solved exactly: minutes and gigabytes
HIDDEN_MOVES = ("dark_chess", "dark_hex", "dark_hex_ir", "kriegspiel", "phantom_go", "phantom_ttt", "phantom_ttt_ir")
SMALL_BOARD = 6  # most cells of a dark hex that has so few histories
# Parameters of the goofspiel that envs.large implements; with fewer cards it is written out.
GOOFSPIEL, LARGE_SUITS = {"players": 2, "num_turns": -1, "egocentric": False, "points_order": "random"}, (5, 6)


def make_two_player(name: str, num_envs: int, seed: int, /, **parameters: Any) -> TwoPlayerVectorEnv:
    """Return `num_envs` games of OpenSpiel's `name` with its `parameters`. Raises UnknownName, ConfigurationError."""
    game = load(name, **parameters)
    if (by_arrays := _by_arrays(game, num_envs, seed)) is not None:
        return by_arrays
    tree = _tree(game, name, PLAYED_ON_TREE) if game.num_players() == PLAYERS else None
    games: TwoPlayerVectorEnv
    games = StateVectorEnv(game, name, num_envs, seed) if tree is None else TreeVectorEnv(tree, num_envs, seed)
    games.max_return = float(max(game.max_utility(), -game.min_utility()))
    games.hidden_moves = game.get_type().short_name in HIDDEN_MOVES
    return games


def sequence_form(name: str, /, **parameters: Any) -> SequenceForm:
    """Return the whole game, for exact solution.

    Raises UnknownName, and ConfigurationError if it cannot be written out.
    """
    game = load(name, **parameters)
    if game.num_players() != PLAYERS:
        raise ConfigurationError(
            f"environment 'openspiel:{name}' is for {game.num_players()} players; exact solution is of games of two"
        )
    tree = _tree(game, name, SOLVED_ON_TREE)
    if tree is None:
        raise ConfigurationError(
            f"environment 'openspiel:{name}' has more than {SOLVED_ON_TREE:,} histories, or hides its information "
            "states or the probabilities of its chance; only a game that can be written out whole is solved exactly"
        )
    return SequenceForm.from_tree(tree)


def large(name: str, /, **parameters: Any) -> LargeGame | None:
    """Return the game if it is too large to be written out and its structure is known; None for any other."""
    game = load(name, **parameters)
    given: dict[str, Any] = dict(game.get_parameters())
    env_id = f"openspiel:{name}"
    match game.get_type().short_name, given:
        case "phantom_ttt", {"obstype": "reveal-nothing", "gameversion": version}:
            return phantom_ttt(env_id, version == "abrupt")
        case "dark_hex", {"obstype": "reveal-nothing", "gameversion": version, "num_rows": rows, "num_cols": columns}:
            if SMALL_BOARD < rows * columns <= MOST_CELLS:
                return dark_hex(env_id, rows, columns, version == "adh")
        case "liars_dice", {"bidding_rule": "reset-face", "numdice": dice, "dice_sides": sides}:
            if sides ** (2 * dice) << (2 * dice * sides + 1) > SOLVED_ON_TREE:
                return LiarsDice(env_id, dice, sides)
        case "turn_based_simultaneous_game", {"game": {"name": "goofspiel", "imp_info": True, **inner}}:
            if GOOFSPIEL.items() <= inner.items() and inner["num_cards"] in LARGE_SUITS:
                return Goofspiel(env_id, inner["num_cards"], inner["returns_type"] == "point_difference")
    return None


def load(name: str, /, **parameters: Any) -> Any:
    """Return the pyspiel.Game, in turns.

    Raises UnknownName, and ConfigurationError for a game that no league can play.
    """
    pyspiel = require("pyspiel", "open_spiel", f"openspiel:{name}")
    short_name = name.partition("(")[0]
    known = pyspiel.registered_names()
    if short_name not in known:  # checked first: OpenSpiel's own error would also go to stderr, past every log
        raise UnknownName("environment", f"openspiel:{name}", [f"openspiel:{game}" for game in known])
    try:
        game = pyspiel.load_game(name, parameters) if parameters else pyspiel.load_game(name)
    except pyspiel.SpielError as error:
        raise ConfigurationError(f"environment 'openspiel:{name}' with parameters {parameters}: {error}") from None
    kind = game.get_type()
    problem = None
    if game.num_players() < PLAYERS:
        problem = "is for one player"
    elif game.num_players() == PLAYERS and kind.utility != pyspiel.GameType.Utility.ZERO_SUM:
        problem = f"is not zero-sum ({kind.utility.name.lower()})"
    elif kind.dynamics == pyspiel.GameType.Dynamics.MEAN_FIELD:
        problem = "is a mean-field game"
    elif not (kind.provides_information_state_tensor or kind.provides_observation_tensor):
        problem = "provides no tensor of observations"
    if problem:
        raise ConfigurationError(
            f"environment 'openspiel:{name}' {problem}; leagues play zero-sum games of two players, and games of more"
        )
    if kind.dynamics == pyspiel.GameType.Dynamics.SIMULTANEOUS:
        game = pyspiel.convert_to_turn_based(game)
    return game


def _by_arrays(game: Any, num_envs: int, seed: int) -> ConnectFour | None:
    """Return the games, if this package has them in arrays: Connect Four on the usual board."""
    if game.get_type().short_name != "connect_four":
        return None
    parameters = dict(game.get_parameters())
    egocentric = bool(parameters.pop("egocentric_obs_tensor", False))
    usual = parameters in ({}, {"rows": ROWS, "columns": COLUMNS, "x_in_row": 4})
    return ConnectFour(game, num_envs, seed, egocentric) if usual else None


def _tree(game: Any, name: str, limit: int) -> GameTree | None:
    """Return the game's tree, or None if it has more than `limit` histories or cannot be written out."""
    pyspiel = require("pyspiel", "open_spiel", f"openspiel:{name}")
    kind = game.get_type()
    explicit = kind.chance_mode != pyspiel.GameType.ChanceMode.SAMPLED_STOCHASTIC
    if not (explicit and kind.provides_information_state_string) or tree_size(game, limit) > limit:
        return None
    return expand(game, f"openspiel:{name}", limit)


class StateVectorEnv(TwoPlayerVectorEnv):
    """N games on OpenSpiel's states, one after another."""

    def __init__(self, game: Any, name: str, num_envs: int, seed: int) -> None:
        self._informed = game.get_type().provides_information_state_tensor
        shape = game.information_state_tensor_shape() if self._informed else game.observation_tensor_shape()
        super().__init__(
            f"openspiel:{name}",
            num_envs,
            tuple(shape),
            game.num_distinct_actions(),
            players=game.num_players(),
            zero_sum=game.get_type().utility.name == "ZERO_SUM",
        )
        self._game = game
        sampled = game.get_type().chance_mode == game.get_type().chance_mode.SAMPLED_STOCHASTIC
        self._chance = Chance(num_envs, seed)
        self.chance = None if sampled else self._chance  # a sampled game draws by itself, from its own generator
        self._states: list[Any] = []
        self._ended: list[Any] = [None] * num_envs
        self._observer = self._fast_observer()

    def history(self, index: int) -> list[int]:
        """Return the actions and chance's outcomes of game `index` so far."""
        return list(self._states[index].history())

    def text(self, index: int) -> str:
        """Return OpenSpiel's own text of the observation."""
        state = self._states[index]
        if self._game.get_type().provides_observation_string:
            return str(state.observation_string(state.current_player()))
        return super().text(index)

    def action_text(self, index: int, action: int) -> str:
        """Return OpenSpiel's name of the action."""
        state = self._states[index]
        return str(state.action_to_string(state.current_player(), action))

    def last_text(self, index: int) -> str:
        """Return OpenSpiel's text of the whole last state."""
        return "" if self._ended[index] is None else str(self._ended[index])

    def _reset(self) -> Turn:
        self._states = [self._start(i) for i in range(self.num_envs)]
        return self._turn_of(*self._no_outcome())

    def _step(self, action: np.ndarray) -> Turn:
        reward, done, truncated = self._no_outcome()
        for i, (state, move) in enumerate(zip(self._states, action.tolist(), strict=True)):
            before = state.returns()
            state.apply_action(move)
            self._past_chance(state, i)
            reward[i] = np.subtract(state.returns(), before)
            if state.is_terminal():
                done[i] = True
                self._ended[i], self._states[i] = state, self._start(i)
        return self._turn_of(reward, done, truncated)

    def _start(self, i: int) -> Any:
        self._chance.begin(self._rows[i : i + 1])
        state = self._game.new_initial_state()
        self._past_chance(state, i)
        return state

    def _past_chance(self, state: Any, i: int) -> None:
        while state.is_chance_node():
            outcomes = state.chance_outcomes()
            if len(outcomes) == 1:
                state.apply_action(outcomes[0][0])
                continue
            thresholds = np.cumsum([probability for _, probability in outcomes])
            drawn = int(np.searchsorted(thresholds[:-1], self._chance.draw(i), side="right"))
            state.apply_action(outcomes[drawn][0])

    def _turn_of(self, reward: np.ndarray, done: np.ndarray, truncated: np.ndarray) -> Turn:
        to_move = np.empty(self.num_envs, np.int8)
        observation = np.empty((self.num_envs, *(self.single_observation_space.shape or ())), np.float32)
        action_mask = np.zeros((self.num_envs, self.num_actions), np.bool_)
        flat = observation.reshape(self.num_envs, -1)
        for i, state in enumerate(self._states):
            player = to_move[i] = state.current_player()
            action_mask[i, state.legal_actions()] = True
            if self._observer is None:
                flat[i] = self._slow_tensor(state, player)
            else:
                self._observer.set_from(state, player)
                flat[i] = self._observer.tensor
        return Turn(to_move, observation, action_mask, reward, done, truncated)

    def _slow_tensor(self, state: Any, player: int) -> list[float]:
        return list(state.information_state_tensor(player) if self._informed else state.observation_tensor(player))

    def _fast_observer(self) -> Any:
        """Return OpenSpiel's observer, which writes into an array, much faster than lists; None if it is not equal."""
        pyspiel = require("pyspiel", "open_spiel", self.name)
        if self._game.get_type().short_name == "turn_based_simultaneous_game":
            return None  # the observers would be those of the inner game, which does not know who is to move
        observation = require("open_spiel.python.observation", "open_spiel", self.name)
        alone = pyspiel.PrivateInfoType.SINGLE_PLAYER
        try:
            observer = observation.make_observation(
                self._game, pyspiel.IIGObservationType(perfect_recall=self._informed, private_info=alone)
            )
            state = self._start(0)
            observer.set_from(state, state.current_player())
        except (pyspiel.SpielError, AttributeError, ValueError, RuntimeError):
            return None
        same = observer.tensor is not None and np.array_equal(
            observer.tensor, np.asarray(self._slow_tensor(state, state.current_player()), np.float32)
        )
        return observer if same else None
