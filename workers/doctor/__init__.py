"""Checks for problems of a run's servers, machine and settings, before it starts or while it goes on.

`python -m workers.doctor` checks everything; `quick` makes the checks that take milliseconds, for launchers.
broker_facts.py, management.py, rabbitmqctl.py, redis_server.py and machine.py gather facts; the judging functions are
pure, so tests can invent facts.
"""

from workers.doctor.findings import Finding, Level
from workers.doctor.quick import quick

__all__ = ["Finding", "Level", "quick"]
