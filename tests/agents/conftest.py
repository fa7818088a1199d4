import pytest


@pytest.fixture(autouse=True)
def tiny_batches(one_thread):
    """Every test here trains on little."""
