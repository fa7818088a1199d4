"""Names for callers: `Solver`, `Args` for its maps, the `Handle` of a call, and `remote` stubs, from tasks/client."""

from tasks.client.arguments import Args
from tasks.client.future import Handle
from tasks.client.remote import remote
from tasks.client.solver import Solver

__all__ = ["Args", "Handle", "Solver", "remote"]
