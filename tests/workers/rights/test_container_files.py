"""Tests of containers' files: a folder has only the login of its role; servers have only hashes of passwords."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tasks import rights
from workers.config import roles
from workers.rights import container_files
from workers.rights.__main__ import main


def made(folder: Path, **more: object) -> dict[str, str]:
    names = container_files.write(folder, "kuhn", **{"environment": {}, **more})  # type: ignore[arg-type]
    return {name: (folder / name).read_text().strip() for name in names}


def passwords(folder: Path) -> dict[str, str]:
    lines = (folder / container_files.PASSWORDS).read_text().splitlines()
    return dict(line.split() for line in lines)  # type: ignore[misc]


def test_each_role_gets_only_the_login_of_its_own_rights(tmp_path: Path) -> None:
    found, known = made(tmp_path, domain="warren.svc"), passwords(tmp_path)
    for role in roles.ROLES:
        user = rights.user_name(role.rights or role.name, "kuhn")
        login = f"{user}:{known[user]}"
        assert found[f"{role.name}/broker-url"] == f"amqp://{login}@rabbitmq.warren.svc:5672//"
        assert found[f"{role.name}/redis-url"] == f"redis://{login}@redis.warren.svc:6379/0"
        told = " ".join(text for name, text in found.items() if name.startswith(f"{role.name}/"))
        assert [one for one, password in known.items() if password in told] == [user]
    assert (tmp_path / container_files.PASSWORDS).stat().st_mode & 0o077 == 0


def test_actors_that_decide_for_env_runners_have_other_rights(tmp_path: Path) -> None:
    assert "//warren.kuhn.actor:" in made(tmp_path)["actor/broker-url"]
    found = made(tmp_path, served=True)
    assert "//warren.kuhn.inference:" in found["actor/broker-url"]
    assert "//warren.kuhn.env:" in found["env/redis-url"] and "//warren.kuhn.learner:" in found["learner/redis-url"]


def test_servers_know_every_user_but_only_their_administrators_password(tmp_path: Path) -> None:
    found, known = made(tmp_path), passwords(tmp_path)
    users = {rights.user_name(role, "kuhn") for role in rights.TABLE}
    definitions = json.loads(found["rabbitmq/definitions.json"])
    assert {one["name"] for one in definitions["users"]} == {"warren", *users} and definitions["vhosts"]
    assert {one["user"] for one in definitions["permissions"]} == {"warren", *users}
    assert found["rabbitmq/rabbitmq.conf"] == "load_definitions = /run/warren/definitions.json"
    assert set(re.findall(r"^user (\S+) ", found["redis/redis.conf"], re.MULTILINE)) == users
    assert found["redis/redis.conf"].splitlines()[0] == f"requirepass {found['redis/password']}"
    told = " ".join(text for name, text in found.items() if name.startswith(("rabbitmq/", "redis/")))
    assert [one for one, password in known.items() if password in told] == ["default"]


def test_a_scalers_user_sees_queues_only_by_the_management_api(tmp_path: Path) -> None:
    found = made(tmp_path)
    user, password = re.findall(r"http://(.*):(.*)@rabbitmq:15672/", found["scaler/management-url"])[0]
    assert (user, password) == ("warren.kuhn.scaler", passwords(tmp_path)[user])
    tags = {one["name"]: one["tags"] for one in json.loads(found["rabbitmq/definitions.json"])["users"]}
    assert [name for name, tag in tags.items() if tag] == [user, "warren"] and tags[user] == "management"


def test_passwords_are_random_and_kept_and_given_ones_are_used(tmp_path: Path) -> None:
    one, other = made(tmp_path / "one"), made(tmp_path / "other")
    assert not set(passwords(tmp_path / "one").values()) & set(passwords(tmp_path / "other").values())
    again, hashes = made(tmp_path / "one"), "rabbitmq/definitions.json"  # each time with another salt
    assert {name: text for name, text in again.items() if name != hashes} == {
        name: text for name, text in one.items() if name != hashes
    }
    given = {"WARREN_REDIS_PASSWORD": "given-one", "WARREN_PASSWORD_ACTOR": "given-too"}
    found = made(tmp_path / "other", environment=given)
    assert found["redis/password"] == "given-one" and ":given-too@" in found["actor/redis-url"]
    assert found["learner/redis-url"] == other["learner/redis-url"]


def test_a_password_that_a_server_would_misread_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WARREN_REDIS_PASSWORD", "of@url")
        assert main(["--run", "kuhn", "files", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: WARREN_REDIS_PASSWORD: use letters, digits") and "of@url" not in told
    assert main(["--run", "kuhn", "files"]) == 2 and "name the folder" in capsys.readouterr().err
    assert main(["files", str(tmp_path)]) == 2 and "--run: not given" in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert main(["--run", "kuhn", "files", str(tmp_path / "file")]) == 2
    assert "name a folder of yours" in capsys.readouterr().err


def test_the_command_prints_the_files_and_no_password(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--run", "kuhn", "files", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert f"{tmp_path}/actor/broker-url" in told.splitlines()
    assert not [user for user, password in passwords(tmp_path).items() if password in told]
