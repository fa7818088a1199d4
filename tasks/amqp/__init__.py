"""AMQP 0-9-1 as bytes: frames, one fast connection, the messages of calls and replies.

Other packages use `connection.Link`, `frames` and `messages`. This one knows nothing of client and worker.
"""
