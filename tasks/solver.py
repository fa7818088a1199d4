"""What callers import: `Solver`, and `remote` stubs. They live in tasks/client."""

from tasks.client.solver import Solver, remote

__all__ = ["Solver", "remote"]
