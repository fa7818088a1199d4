"""Events: any process fires them, all subscribers receive them, and the newest is kept for late subscribers.

Other packages use `EventDispatcher`, `Subscription`, `event_handler` and the names of Warren's own events.
"""

from tasks.events.dispatcher import EventDispatcher, of_player
from tasks.events.subscription import Subscription
from tasks.service import event_handler
from tasks.topology import EVALUATION, STATUS, WEIGHTS

__all__ = ["EVALUATION", "STATUS", "WEIGHTS", "EventDispatcher", "Subscription", "event_handler", "of_player"]
