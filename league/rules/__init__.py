"""The league's arithmetic: PFSP, win rates, ratings, hyperparameters, settings.

Other packages use any function in here: all are pure, and none uses Redis or a clock.
"""
