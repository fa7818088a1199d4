"""A user's middleware in a file, for tests of the settings that name it: as it should be, and wrong."""

CODE = """
from tasks.middleware import Middleware
class Mine(Middleware): pass
def made(): return Mine()
class Other: pass
class Broken(Middleware):
    def __init__(self): raise OSError("no disk")
"""
