"""How strong a league is: payoff cells, scores, pictures; the evaluator.

Others take `cells.Evaluator`, `scores` and `report`.
"""
