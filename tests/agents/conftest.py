import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    """Batches here are tiny: on a busy machine, handing them to a second thread makes an update ten times slower."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
