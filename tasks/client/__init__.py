"""The caller's side: `Solver` and `remote`, calls under way, chords, sending with back-pressure.

Others take `solver.Solver`, `chord.gather` and `bounded_sender.BoundedSender`. Knows nothing of worker.
"""
