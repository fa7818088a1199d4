"""The built-in trackers of a learner's figures, named in workers/config/trackers.py; TensorBoard: ../metrics.py."""
