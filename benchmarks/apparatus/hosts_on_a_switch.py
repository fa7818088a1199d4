"""Hosts on one machine, joined by a switch that delays every packet: the cost of a run over long links.

Each host is a network namespace with /dev/shm and loopback of its own, so only packets pass between two of them.
Each has one TUN device, whose other end is read by a process of this module (`python -m` and its name): it passes a
packet of one host on to the host that it is addressed to, `delay` s later. `tc qdisc ... netem delay` does the same,
but not every kernel is built with netem; TCP reacts to the round trip with its windows and its slow start.

This takes root, iproute2 and /dev/net/tun; it changes only this machine, and is undone at the end.
"""

from __future__ import annotations

import collections
import contextlib
import fcntl
import os
import select
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

TUN, NAMESPACES = "/dev/net/tun", Path("/run/netns")
TUNSETIFF, TUNSETOFFLOAD, TUNSETVNETHDRSZ = 0x400454CA, 0x400454D0, 0x400454D8  # linux/if_tun.h
IFF_TUN, IFF_NO_PI, IFF_VNET_HDR = 0x0001, 0x1000, 0x4000
TUN_F_CSUM, TUN_F_TSO4 = 0x01, 0x02
HEADER = 10  # bytes of virtio_net_hdr before each packet: one read may be several TCP segments, as from a network card
DESTINATION = HEADER + 16  # offset of the destination's address in an IPv4 packet
LARGEST = HEADER + 65535
AT_ONCE = 64  # packets read from one host before it is the others' turn
WAITING = 10_000  # packets that a device holds until the switch reads them


@dataclass(frozen=True)
class Host:
    """One host; the first of a network is this machine itself, without a namespace."""

    name: str
    address: str
    namespace: str | None

    def command(self, words: Sequence[str]) -> list[str]:
        """Return the words that start a command on this host."""
        if self.namespace is None:
            return [*words]
        own_memory = ["sh", "-c", 'mount -t tmpfs -o size=2g shm /dev/shm && exec "$@"', "sh"]
        return ["ip", "netns", "exec", self.namespace, *own_memory, *words]


def lacking() -> str | None:
    """Return why this machine cannot make hosts; None if it can."""
    if os.geteuid():
        return "network namespaces take root"
    if shutil.which("ip") is None:
        return "no `ip`: install iproute2"
    return None if Path(TUN).exists() else f"no {TUN}: this kernel has no TUN devices"


@contextlib.contextmanager
def joined(names: Sequence[str], delay: float) -> Iterator[list[Host]]:
    """Yield hosts of these names, the first on this machine's own network; packets take `delay` s one way."""
    _sweep()
    pid = os.getpid()
    net = f"10.{200 + pid % 50}.{pid // 50 % 250}"
    with contextlib.ExitStack() as stack:
        found, ends = [], []
        for number, name in enumerate(names, 1):
            device, namespace = f"wg{pid}-{number}", None if number == 1 else f"warren-{pid}-{number}"
            end = _device(device)
            stack.callback(os.close, end)
            ends.append(end)
            there: tuple[str, ...] = ()
            if namespace is not None:
                _ip("netns", "add", namespace)
                stack.callback(_ip, "netns", "del", namespace)
                _ip("link", "set", device, "netns", namespace)
                there = ("-n", namespace)
                _ip(*there, "link", "set", "lo", "up")
            _ip(*there, "addr", "add", f"{net}.{number}/24", "dev", device)
            _ip(*there, "link", "set", device, "txqueuelen", str(WAITING), "up")
            found.append(Host(name, f"{net}.{number}", namespace))
        switch = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.apparatus.hosts_on_a_switch", str(delay), *map(str, ends)],
            pass_fds=ends, stdin=subprocess.PIPE,
        )  # fmt: skip
        stack.callback(switch.wait)
        stack.callback(switch.kill)
        yield found


def switch(delay: float, ends: Sequence[int]) -> None:
    """Pass packets on until killed. The n-th of `ends`, from 1, belongs to the host whose address ends in n."""
    polled = select.poll()
    for end in ends:
        os.set_blocking(end, False)
        polled.register(end, select.POLLIN)
    held: collections.deque[tuple[float, int, bytes]] = collections.deque()  # one delay for all: first in, first out
    while True:
        left = None if not held else max(0.0, (held[0][0] - time.monotonic()) * 1e3)
        for end, _ in polled.poll(left):
            for packet in _read(end):
                to = packet[DESTINATION + 3] - 1
                if packet[HEADER] >> 4 == 4 and 0 <= to < len(ends):
                    held.append((time.monotonic() + delay, ends[to], packet))
        while held and held[0][0] <= time.monotonic():
            _, to, packet = held.popleft()
            with contextlib.suppress(OSError):  # that host is gone
                os.write(to, packet)


def _sweep() -> None:
    """Remove the namespaces of programs that were killed."""
    for namespace in sorted(NAMESPACES.glob("warren-*-*")):
        pid = namespace.name.split("-")[1]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            _ip("netns", "del", namespace.name)


def _read(end: int) -> Iterator[bytes]:
    for _ in range(AT_ONCE):
        try:
            yield os.read(end, LARGEST)
        except BlockingIOError:
            return


def _device(name: str) -> int:
    """Return the other end of a new TUN device."""
    end = os.open(TUN, os.O_RDWR)
    fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI | IFF_VNET_HDR))
    fcntl.ioctl(end, TUNSETVNETHDRSZ, struct.pack("i", HEADER))
    fcntl.ioctl(end, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4)
    return end


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


if __name__ == "__main__":
    switch(float(sys.argv[1]), [int(word) for word in sys.argv[2:]])
