"""Finding or starting RabbitMQ and Redis for a run.

    with servers.acquire("auto", folder=run_folder) as found:
        launch_roles(environment=os.environ | found.environment())

modes.py holds the order of the choices, resolve.py makes them, choice.py each of them; running.py is what comes of it;
machine.py what is looked for and where; checks.py the logins and their errors; private_rabbitmq.py and private_redis.py
start servers of one's own; process.py and guard.py see to it that none outlives the run; debian.py installs; record.py
writes into the run folder where they are.
"""

from workers.servers.checks import check, check_broker, check_redis, kind_of, redact
from workers.servers.machine import Machine
from workers.servers.modes import MODES, given_urls
from workers.servers.resolve import PendingServers, acquire, begin
from workers.servers.running import BROKER_VARIABLE, REDIS_VARIABLE, Servers

__all__ = [
    "BROKER_VARIABLE",
    "MODES",
    "REDIS_VARIABLE",
    "Machine",
    "PendingServers",
    "Servers",
    "acquire",
    "begin",
    "check",
    "check_broker",
    "check_redis",
    "given_urls",
    "kind_of",
    "redact",
]
