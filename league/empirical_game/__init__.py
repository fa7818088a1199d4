"""The game between frozen players: mean returns, solvers of the payoff matrix, quantal response.

Others take `returns.Returns` and the solvers. Pure: NumPy in, NumPy out.
"""
