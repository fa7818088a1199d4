"""Events: fired by anyone, received by all who subscribed, the newest kept for who comes late.

Others take `EventDispatcher`, `Subscription`, `event_handler` and the names of Warren's own events.
"""

from tasks.events.dispatcher import EventDispatcher, of_player
from tasks.events.subscription import Subscription
from tasks.service import event_handler
from tasks.topology import EVALUATION, STATUS, WEIGHTS

__all__ = ["EVALUATION", "STATUS", "WEIGHTS", "EventDispatcher", "Subscription", "event_handler", "of_player"]
