"""The strength of a league: payoff cells, scores, pictures; the evaluator.

Others take `cells.Evaluator`, `scores` and `report`.
"""
