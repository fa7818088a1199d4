"""REINFORCE with a baseline (Williams 1992): the return of each step less its value, one gradient step a batch."""

from dataclasses import dataclass

from agents.algorithms import Needs
from agents.algorithms.batches import Batch
from agents.algorithms.gradient import GradientAlgorithm, GradientConfig
from agents.configuration import parse
from agents.operators.losses import policy_gradient, standardize, value_loss
from agents.operators.returns import lambda_return


@dataclass(frozen=True)
class Config(GradientConfig):
    name = "reinforce"


class Reinforce(GradientAlgorithm[Config]):
    needs = Needs(
        fields=("last.observation", "cut.value"),
        unrolls=True,
        sampling=("gathered",),
        because="takes the gradient of the weights that acted",
    )

    def update(self, trajectories):
        learning_rate = self.set_learning_rate()
        batch = Batch(self.policy, self.scaled(trajectories), unrolled=True)
        unroll, said = batch.unroll(self.policy)
        returned = lambda_return(unroll, self.config.gamma, 1.0).detach()
        policy_loss = policy_gradient(said.log_prob, standardize(returned - unroll.value.detach()))
        value = value_loss(unroll.value, returned, scale=self.policy.value_scale)
        entropy = said.entropy.mean()
        loss = policy_loss + self.config.value_coefficient * value - self.entropy_coefficient * entropy
        self.descend(loss, {"policy_loss": policy_loss, "value_loss": value, "entropy": entropy})
        self.learned_from(batch, lambda: returned)
        metrics = {"policy_loss": policy_loss.item(), "value_loss": value.item(), "entropy": entropy.item()}
        return self.result(metrics, learning_rate)


def build(settings, policy, seed):
    return Reinforce(policy, parse(Config, "reinforce", settings), seed)
