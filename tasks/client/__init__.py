"""The caller's side: `Solver` and `remote`, calls under way, chords, sending with back-pressure.

Other packages use `solver.Solver`, `chord.gather`, `bounded_sender.BoundedSender`. Knows nothing of worker.
"""
