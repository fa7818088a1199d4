"""Training one player: trainer, rounds of gathered sampling, metrics; the learner of a plain run.

Other packages use `trainer.Trainer`, `learner_role.LearnerRole` and `metrics`.
"""
