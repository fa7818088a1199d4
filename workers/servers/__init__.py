"""Finding or starting RabbitMQ and Redis for a run.

    with servers.acquire("auto", folder=run_folder) as found:
        launch_roles(environment=os.environ | found.environment())

modes.py holds the order of the choices, resolve.py makes them, choice.py makes one; running.py holds the result;
machine.py finds binaries; checks.py logs in and explains errors; private_rabbitmq.py and private_redis.py start private
servers; process.py and guard.py end them with the run; debian.py installs packages; record.py writes the servers'
addresses into the run folder.
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
