"""AMQP over TLS as a URL says it: amqps://USER:PASSWORD@HOST:5671/VHOST?ssl_ca_certs=ca.pem

kombu hands the options of the URL to py-amqp by names that py-amqp does not know; here they are translated. The
server's certificate and its host name are checked by default, against `ssl_ca_certs` or the system's authorities.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from kombu.transport.pyamqp import SSLTransport

from tasks import compat
from tasks.brokers.declaring import Connection
from warren.errors import ConfigurationError, unknown_name

SCHEME = "amqps"
OPTIONS = {
    "ssl_ca_certs": "ca_certs",
    "ssl_certfile": "certfile",
    "ssl_keyfile": "keyfile",
    "ssl_cert_reqs": "cert_reqs",
    "ssl_server_hostname": "server_hostname",
    "ssl_ciphers": "ciphers",
}
CHECK_HOST = "ssl_check_hostname"


def options(given: Mapping[str, Any], host: str) -> dict[str, Any]:
    """Translate the options of a URL to py-amqp's. Raises ConfigurationError for one that does not exist."""
    of_url = {name: value for name, value in given.items() if name.startswith("ssl_") and name != "ssl_version"}
    wrong = [name for name in of_url if name not in OPTIONS and name != CHECK_HOST]
    if wrong:
        known = [*OPTIONS, CHECK_HOST]
        raise ConfigurationError([unknown_name("option of the broker's URL", name, known) for name in wrong])
    found = {name: value for name, value in given.items() if name not in of_url}
    found |= {OPTIONS[name]: value for name, value in of_url.items() if name in OPTIONS}
    if found.get("cert_reqs") != ssl.CERT_NONE and of_url.get(CHECK_HOST, True):
        found.setdefault("server_hostname", host)
    return found


class Transport(SSLTransport):  # type: ignore[misc]
    """kombu's TLS transport, with the options of the URL."""

    Connection = Connection

    def establish_connection(self) -> Any:
        """Connect as kombu does. Raises ConfigurationError for an option of the URL that does not exist."""
        given = self.client.ssl if isinstance(self.client.ssl, dict) else {}
        self.client.ssl = options(given, self.client.hostname or "localhost") if "context" not in given else given
        return super().establish_connection()


compat.use_transport(SCHEME, f"{__name__}:{Transport.__name__}")
