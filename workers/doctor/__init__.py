"""What will bite a run: its servers, its machine and its settings, looked at before it starts or while it goes on.

`python -m workers.doctor` checks everything, `quick` what takes a launcher milliseconds. broker_facts.py,
redis_server.py and machine.py gather facts; what is judged of them is pure, so that a test can make up any answer.
"""

from workers.doctor.findings import Finding, Level
from workers.doctor.quick import quick

__all__ = ["Finding", "Level", "quick"]
