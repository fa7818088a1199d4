import pytest


@pytest.fixture(autouse=True)
def tiny_batches(one_thread):
    """Run every test here in one thread: its batches are tiny."""
