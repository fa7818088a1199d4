"""The policies of a league's players, each with the player's own network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

import envs
from agents import build_policy
from agents.checkpoints import load_weights, weights_from_bytes
from agents.policies import Policy
from league.matchmaking.view import ModelRef
from workers.config.league import LeagueConfig

Network = Mapping[str, Any]  # `name` and settings


class LeaguePolicies:
    """A maker of policies for the game of a league, on `device` (None: the CPU).

    A player named in the settings has its own network or the league's. A player that joined later has the network that
    its first weights name. Saved weights are of the network that they name; weights that name none, or code that the
    league's settings do not name, are taken to be of the network that the settings give their player.
    """

    def __init__(self, league: LeagueConfig, device: torch.device | None = None) -> None:
        games = envs.make_two_player(league.env, 1, 0, **league.env_kwargs)
        games.close()
        self._league, self._device = league, device
        self._spaces = games.single_observation_space, games.single_action_space
        self._code = {text for name in ("", *league.players) for text in _code_in(league.network_of(name))}

    def network_of(self, player: str, stamp: Mapping[str, Any] | None = None) -> Network:
        """Return the network of `player` or, given the `stamp` of weights of its, the network of those weights."""
        named = (stamp or {}).get("network")
        if isinstance(named, Mapping) and self._code.issuperset(_code_in(named)):
            return named
        return self._league.network_of(player)

    def new(self, player: str, seed: int = 0, network: Network | None = None) -> Policy:
        """Return a policy of `player`, with another `network` if given, and initial weights drawn from `seed`."""
        policy = build_policy(self._league.network_of(player) if network is None else network, *self._spaces, seed)
        return policy if self._device is None else policy.to(self._device)

    def loaded(self, player: str, tensors: Mapping[str, Any], stamp: Mapping[str, Any], source: str) -> Policy:
        """Return a policy with saved weights of `player`. Raises CheckpointError for those of another network."""
        policy = self.new(player, network=self.network_of(player, stamp))
        load_weights(policy, tensors, source)
        return policy

    def frozen(self, model: ModelRef, data: bytes, source: str | None = None) -> Policy:
        """Return the policy of a frozen model, which learns no more, from its bytes.

        Raises CheckpointError, which names `source`, for damaged bytes and for weights of another network.
        """
        tensors, stamp = weights_from_bytes(data, source or str(model))
        return self.loaded(model.player, tensors, stamp, source or str(model)).requires_grad_(False)


def _code_in(settings: Any) -> Iterator[str]:
    """Yield the texts within a network's settings that may name the user's code."""
    if isinstance(settings, str) and ":" in settings:
        yield settings
    elif isinstance(settings, Mapping):
        for value in settings.values():
            yield from _code_in(value)
