"""The Celery app of a run, and where it differs from Celery's own: consumer, remote control, redelivery.

Other packages use `create_app`; workers use `Task` from celery_consumer. Knows nothing of services, events or clients.
"""

from tasks.app.create import CLAIM_EXPIRES, REDELIVER_AFTER, REDIS_TRIES, RunApp, create_app

__all__ = ["CLAIM_EXPIRES", "REDELIVER_AFTER", "REDIS_TRIES", "RunApp", "create_app"]
