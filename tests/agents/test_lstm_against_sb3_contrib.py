"""PPO with an LSTM against a record of sb3-contrib's RecurrentPPO: the same weights give the same gradients."""

import numpy as np
import pytest
import torch
from support.peer_records import contrib_gradients, lstm_loss, lstm_policy, read, weights_of


def test_an_unroll_has_the_losses_and_gradients_of_sb3_contribs_lstm():
    record = read("lstm")
    policy = lstm_policy()
    policy.load_state_dict(weights_of(record, "before."))
    observation, action, begins = (torch.from_numpy(record[name]) for name in ("observation", "action", "begins"))
    assert begins.any(1).sum() > 6, "episodes must begin at many steps"
    said, _ = policy.unroll(observation, weights_of(record, "memory."), begins, action)
    loss = lstm_loss(record, said.log_prob, said.entropy, said.value)
    loss.backward()
    torch.testing.assert_close(loss.detach(), torch.from_numpy(record["loss"]))
    for name, parameter in policy.named_parameters():
        torch.testing.assert_close(parameter.grad, torch.from_numpy(record[f"gradient.{name}"]), msg=name)


def test_sb3_contrib_reproduces_the_recorded_losses_and_gradients():
    pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed (the `peers` extra)")
    record = read("lstm")
    for name, array in contrib_gradients(record).items():
        np.testing.assert_allclose(array, record[name], rtol=1e-4, atol=1e-6, err_msg=name)
