"""The actor: answers with an action and subscribes to the learner's weights."""

import logging

import gymnasium as gym
from dqn import DQN_Agent

from tasks.service import Worker, event_handler, service

logger = logging.getLogger(__name__)


class Actor(Worker):
    def __init__(self, explore=3000):
        super().__init__()
        self.policy = None
        self.eval_cnt = 1
        self.explore = explore  # evaluations over which the share of random actions falls from 1 to 0.02

    def initialize_policy(self, model):
        env_name = "CartPole-v1"
        env = gym.make(env_name)
        action_dim = env.action_space.n
        state_dim = env.observation_space.shape[0]
        dueling = any("advantage" in name for name in model)  # the names of the learner's weights show it
        self.policy = DQN_Agent(state_dim=state_dim, action_dim=int(action_dim), dueling=dueling)

    # response=True: the caller is blocked until the action is there
    @service(response=True)
    def policy_eval(self, state):
        if self.policy is not None:
            action = self.policy.action(state, max(0.02, 1 - self.eval_cnt / self.explore))
            self.eval_cnt += 1
            return action
        return None

    # subscribes to the broadcast 'policy_update'
    @event_handler("policy_update")
    def handler(self, model):
        if self.policy is None:
            self.initialize_policy(model)
        self.policy.model.load_state_dict(model)
        logger.debug("recv msg, update policy")
