"""A game process of two players: Nim, by HTTP and JSON alone. Nothing of Warren is imported.

    python examples/gamecore/nim.py [--games 16] [--stones 15] [--url http://127.0.0.1:8000]

Two players take one to three stones in turn; the player that takes the last stone wins. One session carries both
players of a game, and each request names the player to move. This plays so many games at once, and a new one for each
that ends, until the gateway is gone.
"""

import argparse
import http.client
import json
import threading
import time
import uuid
from urllib.parse import urlparse

PLAYERS = ("first", "second")


class Gateway:
    """One connection that is kept open; a session may be held by another gateway, to which status 307 redirects."""

    answered = False  # True once a gateway has answered any of the games

    def __init__(self, url):
        self.url, self.connection = url, self.connect(url)

    def connect(self, url):
        address = urlparse(url)
        return http.client.HTTPConnection(address.hostname, address.port, timeout=60)

    def ask(self, session, kind, message=None):
        self.connection.request("POST", "/", json.dumps(message), {"session": session, "step_kind": kind})
        reply = self.connection.getresponse()
        said = reply.read()
        Gateway.answered = True
        if reply.status == 307:
            self.connection = self.connect(reply.headers["location"])
            return self.ask(session, kind, message)
        return reply.status, said


def play(gateway, stones):
    session, left, turn = uuid.uuid4().hex, stones, 0
    status, said = gateway.ask(session, "start")
    if status == 503:  # no match yet, or no room
        time.sleep(0.5)
        return
    while left:
        status, said = gateway.ask(session, "tick", {"player": PLAYERS[turn], "left": left})
        if status != 200:
            print(status, said.decode().strip())
            return
        left -= json.loads(said)["take"]
        turn = 1 - turn
    gateway.ask(session, "end", {"winner": PLAYERS[1 - turn]})


def keep_playing(url, stones):
    gateway = Gateway(url)
    failed = False
    while True:
        try:
            play(gateway, stones)
            failed = False
        except (OSError, http.client.HTTPException):
            if Gateway.answered and failed:
                return  # the first address does not answer either: all gateways are gone
            if not Gateway.answered:
                time.sleep(1)  # the gateway is still starting
            gateway, failed = Gateway(url), True  # another gateway may have taken its place


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--games", type=int, default=16)
    parser.add_argument("--stones", type=int, default=15)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    options = parser.parse_args()
    for _ in range(options.games):
        threading.Thread(target=keep_playing, args=(options.url, options.stones)).start()
