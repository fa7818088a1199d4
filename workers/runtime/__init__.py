"""What every role holds while it runs: session, weights, run status, segment ledger, cached policies.

Others take `session.Session`, `connect.connect` and the rest; knows no role.
"""
