"""The league's arithmetic: PFSP, win rates, ratings, hyperparameters, settings.

Others take any function in here: all are pure, none knows of Redis or of a clock.
"""
