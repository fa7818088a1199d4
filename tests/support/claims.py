"""Removal of the claim stores that a test has installed."""

from tasks.codec import claim_check
from tasks.codec.claim_check import ClaimStore


def uninstall_claims(store: ClaimStore) -> None:
    """Undo `claim_check.install`."""
    claim_check._stores.pop(store.prefix, None)
