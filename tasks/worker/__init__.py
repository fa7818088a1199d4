"""The serving side: what receives calls, gathers them into batches, runs them and answers.

Others take `server.Serving`, `batching.BatchTask` and the pool. Knows nothing of client.
"""
