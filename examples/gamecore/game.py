"""A game process that drives its own sessions: CartPole, by HTTP and JSON alone. Nothing of Warren is imported.

    python examples/gamecore/game.py [--games 16] [--url http://127.0.0.1:8000] [--token TOKEN]

plays this many games at once, and a new one for each that ends, until the gateway is gone.
"""

import argparse
import http.client
import json
import threading
import time
import uuid
from urllib.parse import urlparse

import gymnasium

parser = argparse.ArgumentParser()
parser.add_argument("--games", type=int, default=16)
parser.add_argument("--url", default="http://127.0.0.1:8000")
parser.add_argument("--token")
options = parser.parse_args()


class Gateway:
    """One connection that is kept open; a session may be held by another gateway, to which status 307 redirects."""

    answered = False  # True once a gateway has answered any of the games

    def __init__(self, url):
        self.url = url
        self.connection = self.connect(url)

    def connect(self, url):
        address = urlparse(url)
        return http.client.HTTPConnection(address.hostname, address.port, timeout=60)

    def ask(self, session, kind, message=None):
        headers = {"session": session, "step_kind": kind}
        if options.token:
            headers["token"] = options.token
        body = json.dumps(message) if message is not None else ""
        self.connection.request("POST", "/", body, headers)
        reply = self.connection.getresponse()
        said = reply.read()
        Gateway.answered = True
        if reply.status == 307:
            self.connection = self.connect(reply.headers["location"])
            return self.ask(session, kind, message)
        return reply.status, said


def play(env, gateway):
    session = uuid.uuid4().hex
    status, said = gateway.ask(session, "start")
    if status == 503:  # no weights yet, or no room
        time.sleep(1)
        return
    observation, _ = env.reset()
    reward, terminated, truncated = 0.0, False, False
    while not (terminated or truncated):
        status, said = gateway.ask(session, "tick", {"observation": observation.tolist(), "reward": reward})
        if status != 200:
            print(status, said.decode().strip())
            return
        observation, reward, terminated, truncated, _ = env.step(json.loads(said)["action"])
    out_of_time = truncated and not terminated
    gateway.ask(session, "stop", {"observation": observation.tolist(), "reward": reward, "out_of_time": out_of_time})


def keep_playing():
    env, gateway = gymnasium.make("CartPole-v1"), Gateway(options.url)
    failed = False
    while True:
        try:
            play(env, gateway)
            failed = False
        except (OSError, http.client.HTTPException):
            if Gateway.answered and failed:
                return  # the first address does not answer either: all gateways are gone
            if not Gateway.answered:
                time.sleep(1)  # the gateway is still starting
            gateway, failed = Gateway(options.url), True  # another gateway may have taken its place


threads = [threading.Thread(target=keep_playing) for _ in range(options.games)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
