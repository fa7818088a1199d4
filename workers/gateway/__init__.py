"""Games that drive their own sessions, over HTTP or TCP: the gateway, and the Actor class that a user derives from.

Other packages import `Actor`; `python -m workers.gateway` starts the gateway. uvicorn (the extra "gateway") is imported
by http.py alone, so that a learner does not need it.
"""

from workers.gateway.actor import Actor, Unreadable

__all__ = ["Actor", "Unreadable"]
