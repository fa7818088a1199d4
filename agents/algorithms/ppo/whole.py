"""A whole update of PPO by one call of the C library, beside which other players' updates may run."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from agents.algorithms.adam import Adam
from agents.algorithms.at_once import terms_of, with_columns
from agents.algorithms.descent import Descent
from agents.algorithms.ppo.algorithm import PPO, Begun, mean_terms
from agents.native.kinds import kinds_of
from agents.native.whole_update import AdamSteps, Passes, WholeUpdate


class WholePPO:
    """An update that has begun; `update` has to be run before `end`."""

    def __init__(
        self, algorithm: PPO, begun: Begun, update: WholeUpdate, orders: Tensor, states: Sequence[Tensor]
    ) -> None:
        self.update = update
        self._algorithm, self._begun, self._orders, self._states = algorithm, begun, orders, states

    @classmethod
    def of(cls, algorithm: PPO, begun: Begun) -> WholePPO | None:
        """Return the update, or None where it has to be made minibatch by minibatch."""
        optimizer, config = algorithm.descent.optimizer, algorithm.config
        by, batch = begun.by_library, begun.batch
        if by is None or type(optimizer) is not Adam or algorithm.peers.size > 1:
            return None
        if (steps := by.at_once.steps(batch)) is None:
            return None
        steps = with_columns(steps, by.columns(begun.columns, begun.columns["advantage"]), by.loss)
        orders, states = algorithm.orders(len(batch))
        cuts = [0, *(cut.stop for cut in begun.cuts)]
        most_kl = None if config.target_kl is None else 1.5 * config.target_kl
        passes = Passes(list(orders), cuts, config.normalize_advantage, most_kl)
        descent = _adam(algorithm.descent, optimizer, config.max_grad_norm)
        update = WholeUpdate(by.at_once.learner, by.loss, steps, passes, descent, batch.alike or kinds_of(steps.x))
        return cls(algorithm, begun, update, orders, states)

    def end(self) -> dict[str, float]:
        """Return the means of the minibatches' terms, for `PPO.end`. Raises NotFinite as `PPO.follow` does."""
        algorithm, update, begun = self._algorithm, self.update, self._begun
        algorithm.descent.optimizer.state["step"].fill_(update.steps)
        if update.ended is not None:  # take back the orders of passes that did not begin
            algorithm.generator.set_state(self._states[update.ended // len(begun.cuts)])
        assert begun.by_library is not None
        terms = terms_of(begun.by_library.loss, update.terms[:, :-1]) | {"grad_norm": update.terms[:, -1].float()}
        if not update.failed:
            return dict(zip(terms, (column.mean().item() for column in terms.values()), strict=True))
        made = [dict(zip(terms, row, strict=True)) for row in zip(*terms.values(), strict=True)]
        algorithm.follow(begun, made, self._orders)  # torch's error says more
        return mean_terms(made)


def _adam(descent: Descent, optimizer: Adam, longest: float) -> AdamSteps:
    """Return the library's Adam for the parameters of `descent` in their present state."""
    optimizer.begin()
    values, state, factors = descent.parameters.values, optimizer.state, descent.factors
    places = (values, descent.parameters.gradient, state["exp_avg"], state["exp_avg_sq"], factors)
    return AdamSteps(
        optimizer.learning_rate, optimizer.beta1, optimizer.beta2, optimizer.epsilon, optimizer.weight_decay,
        optimizer.decoupled, int(state["step"].item()), longest, values.numel(),
        *(None if one is None else one.data_ptr() for one in places),
    )  # fmt: skip
