"""Actor: the class that a user writes for a game that drives its own sessions; one object per session.

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

Methods may also be plain functions. Each then runs in a thread of its own, and gets its action by
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
    """Raised by an actor for a body that it cannot read: the game gets status 422 and the message, and plays on.

    If `start` raises it, the session is not opened.
    """


class Decision:
    """An action to come: `await` it, or, in a method that is a plain function, ask for its `result()`."""

    def __init__(self, game: Game, *asked: Any) -> None:
        """`asked`: the arguments of Game.act."""
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

    A game calls start, then tick any number of times, then end (or stop, which is the same). A method returns the
    reply's body: bytes, text, a number or None. If it raises, the reply has status 422 and the session is closed,
    unless it raised Unreadable.

    A game may have several agents, which one policy plays, each with a memory, rewards and an episode of its own. In a
    league one policy plays each of `sides`; which policy that is differs from match to match.
    """

    observation_space: ClassVar[gymnasium.Space[Any]]
    action_space: ClassVar[gymnasium.Space[Any]]
    action_masks: ClassVar[bool] = False  # true: `act` may be given masks of legal actions; for Discrete spaces
    sides: ClassVar[Sequence[str | Sequence[str]]] = ()  # of a league's game: each one agent, or a team's

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

        `action_mask`: a bool for each action in the space's order, true if it is legal, at least one of them true;
        None: all are legal. A class that gives masks sets `action_masks`. `reward`: as in the method `reward`, but
        counted only if the rest is accepted, so that a game may send a refused request again.

        Awaiting it raises ValueError for an observation of another shape than the space's or with numbers that are not
        finite, for a mask of another form, and for a wrong reward. It also raises ValueError if the agent is still
        deciding, and if the session would have too many agents.
        """
        return Decision(self._game, observation, agent, action_mask, reward)

    def reward(self, amount: Any, *, agent: str = "") -> None:
        """Add to the reward of `agent` since its last action: a number, or as env.reward_channels declares.

        A reward before an agent's first action is not learned from; in a league it counts for the result of the game.
        Raises ValueError.
        """
        self._game.reward(amount, agent)

    def over(self, *, agent: str = "", last: Any = None, action_mask: Any = None) -> None:
        """End the episode of `agent` before the game ends; its next action begins another.

        With `last`, an observation, the episode was only cut off there: learning takes into account the value of what
        would have followed. `action_mask`, given as in `act`, says which actions would have been legal there. Without
        `last`, this was the episode's true end, as the end of the game is for all agents. Raises ValueError.
        """
        self._game.over(agent, last, action_mask)

    def new_game(self) -> None:
        """End the game before its session ends: all agents' episodes are over, and the next action begins another game.

        For a session of several games, each of which a league counts. Raises ValueError while an agent is deciding.
        """
        self._game.begin_anew()
