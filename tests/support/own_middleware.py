"""A user's file of middleware, valid and invalid, for tests of the settings that name it."""

CODE = """
from tasks.middleware import Middleware
class Mine(Middleware): pass
def made(): return Mine()
class Other: pass
class Broken(Middleware):
    def __init__(self): raise OSError("no disk")
"""
