"""Certificates for TLS of RabbitMQ and Redis, signed by one's own development authority, by the command openssl.

A folder gets ca.pem, which clients need, and its key; server.pem, which names the servers' hosts; and client.pem, for
servers that ask for one. Only their owner may read the keys. The authority is kept, so that servers may be added.
"""

from __future__ import annotations

import ipaddress
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from warren.errors import ConfigurationError

AUTHORITY, SERVER, CLIENT = "ca", "server", "client"
DAYS, DAYS_OF_AUTHORITY = 397, 3650  # some clients refuse more than 397
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_HOST = re.compile(r"[A-Za-z0-9*]([A-Za-z0-9-]*)(\.[A-Za-z0-9-]+)*")


def make(folder: Path, hosts: Sequence[str]) -> None:
    """Write certificates for servers at `hosts`, names or addresses, into `folder`; its authority, if any, is used.

    Raises ConfigurationError without openssl, for a host that is neither a name nor an address, and for a folder that
    cannot be written.
    """
    if shutil.which("openssl") is None:
        raise ConfigurationError("openssl, which makes certificates, is not installed; install it")
    names = ",".join(map(_named, hosts))
    try:
        _make(folder, hosts[0], names)
    except OSError as error:
        raise ConfigurationError(f"{folder}: cannot be written: {error.strerror}; name another folder") from None


def _make(folder: Path, subject: str, names: str) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (folder / f"{AUTHORITY}.key").exists():
        rules = ("basicConstraints=critical,CA:TRUE,pathlen:0", "keyUsage=critical,keyCertSign,cRLSign")
        added = [word for rule in rules for word in ("-addext", rule)]
        _openssl(
            folder, "req", "-x509", *KEY, "-days", str(DAYS_OF_AUTHORITY), "-subj", "/CN=Warren development authority",
            *added, "-keyout", f"{AUTHORITY}.key", "-out", f"{AUTHORITY}.pem",
        )  # fmt: skip
    _sign(folder, SERVER, subject, f"subjectAltName={names}\nextendedKeyUsage=serverAuth,clientAuth\n")
    _sign(folder, CLIENT, "warren", "extendedKeyUsage=clientAuth\n")


def settings(folder: Path) -> str:
    """Return the lines for rabbitmq.conf and redis.conf, and the options for URLs, as text."""
    at = folder.resolve()
    return f"""\
rabbitmq.conf:
  listeners.tcp = none
  listeners.ssl.default = 5671
  ssl_options.cacertfile = {at}/ca.pem
  ssl_options.certfile = {at}/server.pem
  ssl_options.keyfile = {at}/server.key
  ssl_options.verify = verify_peer
  ssl_options.fail_if_no_peer_cert = false
redis.conf:
  port 0
  tls-port 6379
  tls-ca-cert-file {at}/ca.pem
  tls-cert-file {at}/server.pem
  tls-key-file {at}/server.key
  tls-auth-clients optional
URLs of all processes:
  amqps://USER:PASSWORD@HOST:5671//?ssl_ca_certs={at}/ca.pem
  rediss://USER:PASSWORD@HOST:6379/0?ssl_ca_certs={at}/ca.pem
where servers ask for a client's certificate (fail_if_no_peer_cert = true, tls-auth-clients yes), also
  &ssl_certfile={at}/client.pem&ssl_keyfile={at}/client.key
"""


def _named(host: str) -> str:
    try:
        return f"IP:{ipaddress.ip_address(host)}"
    except ValueError:
        if not _HOST.fullmatch(host):
            raise ConfigurationError(f"host: {host!r} is neither a name nor an address; use that of the URLs") from None
        return f"DNS:{host}"


def _sign(folder: Path, name: str, subject: str, extensions: str) -> None:
    """Make a key and a certificate that the folder's authority has signed."""
    request, wanted = folder / f"{name}.csr", folder / f"{name}.ext"
    wanted.write_text(f"basicConstraints=critical,CA:FALSE\n{extensions}", encoding="utf-8")
    try:
        _openssl(folder, "req", *KEY, "-subj", f"/CN={subject}", "-keyout", f"{name}.key", "-out", request.name)
        _openssl(
            folder, "x509", "-req", "-in", request.name, "-CA", f"{AUTHORITY}.pem", "-CAkey", f"{AUTHORITY}.key",
            "-CAcreateserial", "-days", str(DAYS), "-extfile", wanted.name, "-out", f"{name}.pem",
        )  # fmt: skip
    finally:
        request.unlink(missing_ok=True)
        wanted.unlink(missing_ok=True)


def _openssl(folder: Path, *words: str) -> None:
    done = subprocess.run(["openssl", *words], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise ConfigurationError(f"openssl {words[0]} failed in {folder}: {lines[-1]}")
    for key in folder.glob("*.key"):
        key.chmod(0o600)
