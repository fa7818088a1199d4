"""The league in Redis: atomic scripts over its keys, so that any number of league workers may run.

Other packages use `store.Store`, `periods.Periods` and `shared_returns.SharedReturns`.
"""
