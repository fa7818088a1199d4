"""The league in Redis: atomic scripts over its keys, so that any number of league workers may run.

Others take `store.Store`, `periods.Periods` and `shared_returns.SharedReturns`.
"""
