"""The specification of a run from a file: one host's share of services and environments."""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from pathlib import Path

from workers.config.roles import Done
from workers.launch.kinds.run_file import EntryShare, RunFile
from workers.launch.kinds.user_middleware import VARIABLE as MIDDLEWARE
from workers.launch.spec import ProcessSpec, RunSpec, ServersSpec

UNKNOWN_FOR = 10  # s that an environment's call waits for a service that no worker has ever offered
PATIENCE = 60  # s that a call waits while its services have no worker: long enough for a restart that imports torch


def services(file: RunFile, host: str | None, roles: list[str], events: list[str]) -> RunSpec:
    """Return the specification of `host`'s share; its folder is named by the time.

    `roles`: first parts of the services' names; `events`: the events to which they subscribe.
    """
    leads = file.join is None and host == file.leader
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", file.path.stem).strip("-") or "run"
    # Hosts have to find each other, so their run has the file's name; other runs must not share names on servers.
    run = file.join or file.run or (stem if file.hosts else f"{stem[:60]}-{uuid.uuid4().hex[:6]}")
    trial = f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:4]}"
    folder = Path(file.folder) / stem / trial
    shares = file.shares(host if file.hosts else None, empty=leads)  # the leader's can get processes later
    counts = ", ".join(f"{share.count} {share.entry.name}" for share in shares if share.count)
    return RunSpec(
        kind="services",
        run=run,
        title=f"{run}{f' on {host}' if host else ''}: {counts}",
        folder=folder,
        files={"run.yaml": file.path.read_text(encoding="utf-8")},
        processes=tuple(_process(file, host, folder, share) for share in shares),
        servers=ServersSpec(file.broker if leads else "external", listen=file.listen if leads else None),
        restarts=file.restarts,
        host=host,
        leads=leads,
        hosts=tuple(file.hosts),
        waits_for_hosts=True,
        join_command=f"python -m workers.run {file.path} --host {{host}}",
        card={"kind": "services", "folder": str(folder.resolve()), "roles": roles, "events": events},
        sweep=bool(file.run or file.hosts),
        metrics=None if file.metrics_port is None else ("127.0.0.1", file.metrics_port),
    )


def _process(file: RunFile, host: str | None, folder: Path, share: EntryShare) -> ProcessSpec:
    entry = share.entry
    module = "workers.script" if entry.finite else "workers.serve"
    command: tuple[str, ...] = ("-m", module, str(entry.place), "--kwargs", json.dumps(dict(entry.kwargs)))
    numbered: tuple[str, ...] = ()
    if not entry.finite:
        command = (*command, "--name", entry.name, "--log-level", file.log_level)
        numbered = ("--process", "{name}", "--rank", "{rank}")
    return ProcessSpec(
        role=entry.name,
        ranks=range(share.first, share.first + share.count),
        command=command,
        numbered=numbered,
        environment={
            "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),  # the processes share this machine's cores
            "WARREN_PATIENCE": os.environ.get("WARREN_PATIENCE", str(PATIENCE)),
            "WARREN_FOLDER": str(folder.resolve()),
            **({MIDDLEWARE: ",".join(map(str, file.middleware))} if file.middleware else {}),
            **({"WARREN_UNKNOWN_FOR": str(UNKNOWN_FOR)} if entry.finite else {}),
        },
        done=Done.once if entry.finite else Done.restart,
        phase=int(entry.finite),  # an environment calls the services until it ends, so it starts last and stops first
        stop_order=0 if entry.finite else 1,
        setting=entry.name,
        suffix=f"-{host}" if file.join else "",  # the joined run has processes of the same names
        num=entry.num,
    )
