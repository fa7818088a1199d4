"""The game between frozen players: mean returns, solvers of the payoff matrix, quantal response.

Other packages use `returns.Returns` and the solvers. All of it is pure: NumPy in, NumPy out.
"""
