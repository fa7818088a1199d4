"""AMQP 0-9-1 as bytes: frames, one fast connection, the messages of calls and replies.

Others take `connection.Link`, `frames` and `messages`. Knows nothing of client and worker.
"""
