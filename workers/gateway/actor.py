"""Actor: what a user writes for a game that drives its own sessions. One object a session.

    class CartPole(Actor):
        observation_space = Box(-np.inf, np.inf, (4,), np.float32)
        action_space = Discrete(2)

        async def tick(self, body):
            message = json.loads(body)
            self.reward(message["reward"])                      # earned since the last action
            action = await self.act(message["observation"])
            return json.dumps(int(action))

        async def end(self, body):
            self.reward(json.loads(body)["reward"])

Methods may also be plain functions. Each then runs in a thread of its own, and takes its action by
`self.act(observation).result()`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium

if TYPE_CHECKING:
    from workers.gateway.game import Game


class Unreadable(Exception):
    """For an actor to raise, of a body that it cannot read: the game gets status 422 and the message, and plays on."""


class Decision:
    """An action to come: `await` it, or, in a method that is a plain function, ask for its `result()`."""

    def __init__(self, game: Game, *asked: Any) -> None:
        """`asked`: see Game.act."""
        self._game, self._asked = game, asked

    def __await__(self) -> Generator[Any, None, Any]:
        return self._game.act(*self._asked).__await__()

    def result(self) -> Any:
        """Wait for the action and return it. Raises RuntimeError in a coroutine, which would stop all games."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:  # none runs in a plain function's thread
            running = None
        if running is self._game.loop:
            raise RuntimeError("act(...).result() is for plain functions; a coroutine awaits it: await self.act(...)")
        return asyncio.run_coroutine_threadsafe(self._game.act(*self._asked), self._game.loop).result()


class Actor:
    """The far end of one game's session: reads what the game sends, decides by the policy, answers.

    A game calls start, then tick any number of times, then end (or stop, which is the same). What a method returns,
    bytes or text or None, is the reply's body. One that raises is answered by status 422, and its session is closed,
    unless it raised Unreadable.

    `agents` of one game are players of it by one policy, each with a memory, rewards and an episode of its own. In a
    league each of `sides` is played by one policy, and which one differs from match to match.
    """

    observation_space: ClassVar[gymnasium.Space[Any]]
    action_space: ClassVar[gymnasium.Space[Any]]
    action_masks: ClassVar[bool] = False  # `act` is told which actions are legal; for Discrete ones
    sides: ClassVar[Sequence[str | Sequence[str]]] = ()  # a league's game's: each an agent, or the agents of a team

    _game: Game

    @property
    def session(self) -> str:
        """The name that the game gave to its session."""
        return self._game.session

    @property
    def key(self) -> str | None:
        """The header `key` of the request that is being answered."""
        return self._game.key

    @property
    def time(self) -> str | None:
        """The header `time` of the request that is being answered."""
        return self._game.time

    async def start(self, body: bytes) -> Any:
        """Begin the game."""
        return b""

    def tick(self, body: bytes) -> Any:
        """Return the answer to one tick of the game."""
        raise NotImplementedError

    async def end(self, body: bytes) -> Any:
        """End the game."""
        return b""

    def act(self, observation: Any, *, agent: str = "", action_mask: Any = None, reward: Any = None) -> Decision:
        """Return the action for `observation`, as the action space has it, once it is awaited.

        `action_mask`: bool for each action in the space's order, whether it is legal, one at least; None: all are. The
        class says by `action_masks` that there are such. `reward`: as by `reward`, but counted only if the rest is
        accepted, so that a game may send a refused request again.

        Raises ValueError, when it is asked for, where the observation is not of the observation space's shapes or is
        not finite, for a mask of another form or a wrong reward, where the agent is still deciding, and where the
        session would have more agents than it may.
        """
        return Decision(self._game, observation, agent, action_mask, reward)

    def reward(self, amount: Any, *, agent: str = "") -> None:
        """Add to the reward of `agent` since its last action: a number, or as env.reward_channels declares.

        What comes before an agent's first action belongs to none, and is dropped. Raises ValueError.
        """
        self._game.reward(amount, agent)

    def over(self, *, agent: str = "", last: Any = None, action_mask: Any = None) -> None:
        """End the episode of `agent` before the game ends; its next action begins another.

        With `last`, an observation, it ran out of time there and would go on in principle; the value of what was
        cut off is taken into account, as that of the actions that `action_mask` allows there, if it is given as in
        `act`. Without `last`, this was its true end, as it is of all agents when `end` returns.
        Raises ValueError.
        """
        self._game.over(agent, last, action_mask)

    def new_game(self) -> None:
        """End the game before its session ends: all agents' episodes are over, and the next action begins another game.

        For a session of several games, of which a league counts each. Raises ValueError while an agent is deciding.
        """
        self._game.begin_anew()
