"""Training one player: trainer, rounds of gathered sampling, metrics; the learner of a plain run.

Others take `trainer.Trainer`, `worker.LearnerRole` and `metrics`.
"""
