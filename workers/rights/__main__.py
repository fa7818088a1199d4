"""`python -m workers.rights`: a user for each role on RabbitMQ and Redis, with no more rights than the role needs.

python -m workers.rights --run NAME apply        # make warren.NAME.actor, warren.NAME.learner, ..., or change them
python -m workers.rights --run NAME show         # show what each role may do
python -m workers.rights --run NAME definitions  # for RabbitMQ to import, with hashes in the place of passwords
python -m workers.rights --run NAME acl          # for Redis's ACL file or redis.conf, likewise
python -m workers.rights --run NAME env actor    # eval "$(...)" in the shell of a role that is started by hand
python -m workers.rights --run NAME files FOLDER # for containers: a folder for each server, and for each role
python -m workers.rights --run NAME remove       # delete the users

Without --run the users are those of all runs, warren.actor and so on; Redis has no rules for them, so `apply`, `acl`
and `files` need --run.

The servers are those of --broker-url and --redis-url, or of WARREN_BROKER_URL and WARREN_REDIS_URL, with the login of
an administrator. Passwords are kept in the file --passwords, or WARREN_PASSWORDS, which only its owner may read. A
password is taken from WARREN_PASSWORD_ACTOR (and so on) if that is set, else it is random. A launcher with
WARREN_PASSWORDS in its environment hands each process only the login of its own role.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from pathlib import Path

from kombu import Connection

from tasks import rights
from warren.errors import ConfigurationError
from workers.config.command_line import guarded, urls_from_environment
from workers.doctor.management import default_management_url
from workers.rights import accounts, container_files, keys, on_rabbitmq, on_redis
from workers.servers import check_broker, kind_of

VERBS = ("apply", "show", "definitions", "acl", "env", "files", "remove")
OF_ONE = ("env", "show", "files")  # these take another word
OF_ONE_RUN = ("apply", "acl", "files")


def run(options: argparse.Namespace) -> int:
    """Do what the command line asks and return exit status 0. Raises ConfigurationError, BrokerError."""
    if options.role is not None and options.verb not in OF_ONE:
        raise ConfigurationError(f"{options.verb}: it is for all roles at once; leave {options.role!r} out")
    if options.run is None and options.verb in OF_ONE_RUN:
        raise ConfigurationError(f"--run: not given, and users of Redis are of one run; `--run NAME {options.verb}`")
    if options.verb == "show":
        show(options.run, options.role)
        return 0
    if options.verb == "files":
        return files(options)
    path = options.passwords or os.environ.get(accounts.VARIABLE)
    if not path:
        raise ConfigurationError(f"--passwords: not given, nor {accounts.VARIABLE}; name a file for the passwords")
    if options.verb in ("definitions", "acl"):
        found = accounts.kept(Path(path), options.run)
        if options.verb == "acl":
            print("\n".join(on_redis.lines(found)))
        else:
            print(json.dumps(on_rabbitmq.definitions(found, options.vhost), indent=2))
        return 0
    urls_from_environment(options)
    if not (options.broker_url and options.redis_url):
        raise ConfigurationError("--broker-url and --redis-url: not given, nor WARREN_BROKER_URL and WARREN_REDIS_URL")
    if kind_of(options.broker_url) != "rabbitmq":
        raise ConfigurationError("--broker-url: a Redis broker has no rights of roles; use RabbitMQ")
    if options.verb == "env":
        return environment(accounts.read(Path(path)), options)
    return change(Path(path), options)


def change(path: Path, options: argparse.Namespace) -> int:
    """Make or delete the users on both servers; return 0. Raises BrokerError."""
    check_broker(options.broker_url)
    broker = _broker(options)
    if options.verb == "remove":
        users = [rights.user_name(role, options.run) for role in rights.TABLE]
        of_broker = broker.remove(users)
        of_redis, note = on_redis.remove(options.redis_url, users)
        print(f"deleted {of_broker} users of RabbitMQ, {of_redis} of Redis")
    else:
        found = accounts.kept(path, options.run)
        broker.apply(on_rabbitmq.definitions(found, Connection(options.broker_url).virtual_host or "/"))
        note = on_redis.apply(options.redis_url, found)
        print(f"{', '.join(found.passwords)}; passwords in {path}")
    if note:
        print(f"note: {note}")
    return 0


def files(options: argparse.Namespace) -> int:
    """Write the files of containers; return 0. Raises ConfigurationError."""
    if options.role is None:
        raise ConfigurationError("files: name the folder, too")
    folder = Path(options.role)
    for name in container_files.write(folder, options.run, served=options.served, domain=options.domain):
        print(folder / name)
    return 0


def environment(found: accounts.Accounts, options: argparse.Namespace) -> int:
    """Print the shell's `export` of a role's URLs, password included; return 0. Raises ConfigurationError."""
    if options.role is None:
        raise ConfigurationError("env: name the role, too")
    urls = found.environment(options.role, options.run or "", options.broker_url, options.redis_url)
    for name, value in urls.items():
        print(f"export {name}={shlex.quote(value)}")
    return 0


def show(run_name: str | None, role: str | None) -> None:
    """Print the rights of a role, or of all. Raises UnknownName."""
    if role is not None:
        rights.user_name(role)
    for name in rights.TABLE if role is None else (role,):
        print(rights.user_name(name, run_name))
        for kind, pattern in rights.TABLE[name].patterns(run_name).items():
            print(f"  RabbitMQ {kind:9} {pattern}")
        rules = "with --run alone" if run_name is None else " ".join(keys.TABLE[name].rules(run_name))
        print(f"  Redis {rules or 'nothing'}")


def _broker(options: argparse.Namespace) -> on_rabbitmq.ByControl | on_rabbitmq.ByManagement:
    if options.rabbitmqctl:
        return on_rabbitmq.ByControl(on_rabbitmq.control_by(options.rabbitmqctl))
    url = options.management_url or default_management_url(options.broker_url)
    if url is None:
        raise ConfigurationError("--management-url: not given, for a broker with TLS; give https://HOST:15671")
    return on_rabbitmq.ByManagement(options.broker_url, url)


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m workers.rights", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", metavar="NAME", help="the run, which `apply`, `acl` and `files` need")
    parser.add_argument("--passwords", metavar="FILE", help="default: WARREN_PASSWORDS")
    parser.add_argument("--broker-url", help="default: WARREN_BROKER_URL, which `ps` does not show")
    parser.add_argument("--redis-url", help="default: WARREN_REDIS_URL, likewise")
    parser.add_argument("--management-url", metavar="URL", help="of RabbitMQ (default: port 15672 of its host)")
    parser.add_argument("--rabbitmqctl", metavar="COMMAND", help='in its place, e.g. "docker exec -i NAME rabbitmqctl"')
    parser.add_argument("--vhost", default="/", help="virtual host, for `definitions`")
    parser.add_argument("--served", action="store_true", help="for `files` of a run with sampling=served")
    parser.add_argument("--domain", default="", help="for `files`: of the hosts rabbitmq and redis, e.g. warren.svc")
    parser.add_argument("verb", choices=VERBS)
    parser.add_argument(
        "role", nargs="?", metavar="ROLE", help=f"for env and show: {', '.join(rights.TABLE)}; for files: the folder"
    )
    options = parser.parse_args(argv)
    return guarded(lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
