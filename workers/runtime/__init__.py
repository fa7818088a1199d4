"""The life of a role's process and its tools: session, leases, run status, facts, weights, segment ledger.

Roles use `role.enter`, `role.live` and `session.Session`; nothing here depends on a particular role.
"""
