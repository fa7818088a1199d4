"""Search hyperparameters with Optuna, which proposes trials, sees their evaluations, and ends those that fall behind.

python examples/tuning/tune.py 20 total_steps=40000      # trials of this call; further words are settings of each run
python examples/tuning/tune.py 20 total_steps=40000      # 20 more: the study stays in runs/tune.journal
"""

import sys
from pathlib import Path

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

import warren

STUDY = Path("runs/tune.journal")
EVALUATION = {"every": 5_000, "episodes": 10}


def train(trial, words):
    """Return the mean return of the last evaluation. Raises TrialPruned if Optuna ended the run early."""
    settings = {
        "learning_rate": trial.suggest_float("learning_rate", 1e-4, 1e-2, log=True),
        "epochs": trial.suggest_int("epochs", 1, 10),
    }

    def on_evaluation(point):
        trial.report(point["mean_return"], point["steps"])
        return not trial.should_prune()  # False ends the run cleanly

    given = {"algorithm": settings, "evaluation": EVALUATION, "env.goal": None}
    result = warren.train(*words, on_evaluation=on_evaluation, quiet=True, **given)
    if result.state == "stopped":
        raise optuna.TrialPruned
    return result.evaluations[-1]["mean_return"]


if __name__ == "__main__":
    count, *words = sys.argv[1:]
    STUDY.parent.mkdir(exist_ok=True)
    storage = JournalStorage(JournalFileBackend(str(STUDY)))
    study = optuna.create_study(storage=storage, study_name="ppo", direction="maximize", load_if_exists=True)
    study.optimize(lambda trial: train(trial, words), n_trials=int(count))
    print(f"best of {len(study.trials)}: {study.best_value:g} by {study.best_params}")
