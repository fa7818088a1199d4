"""The serving side: it receives calls, gathers them into batches, runs them and answers.

Other packages use `server.Serving`, `batching.BatchTask` and the pool. Knows nothing of client.
"""
