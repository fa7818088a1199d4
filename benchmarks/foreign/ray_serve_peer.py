"""The service of `benchmarks.gamecore` by Ray Serve. It runs by the Python of an environment that has Ray and torch.

`ray_serve_peer.py PORT mlp|cnn` prints "ready" once it serves: one replica, which holds the sessions and batches
concurrent requests into one forward pass, with Ray's own decorator.
"""

import sys

import numpy as np
import ray
import torch
from ray import serve
from starlette.requests import Request
from starlette.responses import Response
from torch import nn

IMAGE = (4, 84, 84)


def network(kind: str) -> nn.Module:
    """Return a policy of Warren's sizes, without its value."""
    if kind == "mlp":
        return nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
    return nn.Sequential(
        nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3, 1), nn.ReLU(),
        nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 6),
    )  # fmt: skip


@serve.deployment(num_replicas=1, max_ongoing_requests=4096, ray_actor_options={"num_cpus": 1})
class Gateway:
    def __init__(self, kind: str) -> None:
        torch.set_num_threads(1)
        self.kind, self.network, self.sessions = kind, network(kind), set()

    @serve.batch(max_batch_size=1024, batch_wait_timeout_s=0.0)
    async def act(self, observations: list) -> list:
        batch = torch.from_numpy(np.stack(observations))
        with torch.inference_mode():
            logits = self.network(batch.float() / 255 if self.kind == "cnn" else batch)
            return torch.multinomial(torch.softmax(logits, -1), 1).squeeze(-1).tolist()

    async def __call__(self, request: Request) -> Response:
        session = request.headers.get("session") or request.headers.get("game_id")
        kind = request.headers.get("step_kind")
        if kind == "start":
            self.sessions.add(session)
            return Response(b"")
        if session not in self.sessions:
            return Response(b"not open", 404)
        if kind != "tick":
            self.sessions.discard(session)
            return Response(b"")
        body = await request.body()
        array = np.frombuffer(body, np.uint8).reshape(IMAGE) if self.kind == "cnn" else np.frombuffer(body, np.float32)
        return Response(bytes([await self.act(array)]))


port, kind = int(sys.argv[1]), sys.argv[2]
ray.init(num_cpus=2, log_to_driver=False, include_dashboard=False, logging_level="ERROR")
serve.start(http_options={"host": "127.0.0.1", "port": port})
serve.run(Gateway.bind(kind))
print("ready", flush=True)
sys.stdin.read()
serve.shutdown()
ray.shutdown()
