"""The learner: stores the environments' experiences, learns from them and broadcasts the new weights."""

import logging
import os
from pathlib import Path

import gymnasium as gym
from dqn import DQN_Agent, Experience
from safetensors.torch import save_file

from tasks.events import EventDispatcher
from tasks.service import Worker, service

logger = logging.getLogger(__name__)


class Learner(Worker):
    def __init__(self, double=True, dueling=False, update_interval=10):
        super().__init__()
        self.ed = EventDispatcher()
        self.double, self.dueling, self.update_interval = double, dueling, update_interval
        self.train_cnt = 0
        self.initialize_model()

    def initialize_model(self):
        env_name = "CartPole-v1"
        env = gym.make(env_name)
        action_dim = env.action_space.n
        state_dim = env.observation_space.shape[0]
        self.policy = DQN_Agent(
            state_dim=state_dim, action_dim=int(action_dim), double=self.double, dueling=self.dueling
        )
        network_weight = self.policy.model.state_dict()
        self.ed.fire("policy_update", payload=network_weight)
        logger.info("initialize policy network")

    @service(response=False, batch=5, bound=100)  # once 100 wait, senders are slowed down
    def send_to_learner(self, experiences):
        result = []
        for experience in experiences:
            experience = Experience(*experience)
            self.policy.store_experience(experience)
            result.append(None)
            self.policy.train()
            self.train_cnt += 1
            if self.train_cnt % self.update_interval == 0:
                policy = self.policy.model.state_dict()
                # broadcasts the new weights
                self.ed.fire("policy_update", payload=policy)
            if self.train_cnt % 1000 == 0:
                save_file(self.policy.model.state_dict(), Path(os.environ["WARREN_FOLDER"]) / "policy.safetensors")
        return result
