"""Secrets of source, sink and pipelines are where they are needed, and nowhere else."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import judge
import pytest
from spark.launching import command
from spark.topics import Topics, committed

from ottla.client.failure import Failed
from ottla.spark.secrets import HIDDEN, Private, find_exposed, is_secret, redact
from ottla.spark.sink.options import SinkOptions
from ottla.spark.source.options import SourceOptions
from ottla.spark.values.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Iterator

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SECRETS = {"alice": "source-secret-71c0", "bob": "sink-secret-93ab"}
KEY = "c2VjcmV0IGtleQ"
PEM_KEY = f"-----BEGIN PRIVATE KEY-----\n{KEY}\n-----END PRIVATE KEY-----\n"
PEM_CHAIN = "-----BEGIN CERTIFICATE-----\nbm9uZQ\n-----END CERTIFICATE-----\n"
START_S = 160.0


def jaas(user: str) -> str:
    return f'{MODULE} required username="{user}" password="{SECRETS[user]}";'


SASL = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Apache Kafka with two listeners: one without a login, one with."""
    (port,) = judge.free_ports(1)
    kafka = judge.Kafka(tmp_path_factory.mktemp("kafka"))
    here = [f"PLAINTEXT://127.0.0.1:{kafka.port}", f"SASL_PLAINTEXT://127.0.0.1:{port}"]
    known = " ".join(f'user_{user}="{secret}"' for user, secret in SECRETS.items())
    kafka._settings |= {
        "listeners": ",".join([*here, f"CONTROLLER://127.0.0.1:{kafka._side_port}"]),
        "advertised.listeners": ",".join(here),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{MODULE} required {known};",
    }
    with kafka:
        yield kafka.bootstrap, f"127.0.0.1:{port}"


def leaks(folder: Path, secrets: list[str]) -> dict[str, list[str]]:
    found = {}
    for path in folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes().decode(errors="replace")
            if inside := [secret for secret in secrets if secret in content]:
                found[str(path.relative_to(folder))] = inside
    return found


def test_no_secret_is_left_in_plans_logs_checkpoints_and_processes(guarded: tuple[str, str], tmp_path: Path) -> None:
    secret, folder = tmp_path / "jaas", tmp_path / "run"
    secret.write_text(jaas("alice"))
    logins = {
        "reference": {
            "source": {**SASL, "kafka.sasl.jaas.config.file": str(secret)},
            "sink": {**SASL, "kafka.sasl.username": "bob", "kafka.sasl.password.env": "BOBS_PASSWORD"},
        },
        "open": {
            "source": {**SASL, "kafka.sasl.jaas.config": jaas("alice")},
            "sink": {**SASL, "kafka.sasl.username": "bob", "kafka.sasl.password": SECRETS["bob"]},
        },
    }
    topics = Topics(guarded[0])
    source, target = topics.make("source-"), topics.make("target-")
    topics.fill(source, [str(number) for number in range(20)])
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("secretive.py")), guarded[1], source, target, str(folder)],
        input=json.dumps(logins),
        capture_output=True,
        text=True,
        timeout=START_S,
        env={**os.environ, "BOBS_PASSWORD": SECRETS["bob"]},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(committed(guarded[0], target)) == 80  # a batch and a stream, for each login
    (folder / "errors").write_text(done.stderr)
    assert leaks(folder, list(SECRETS.values())) == {}
    assert any("kafka.sasl.jaas.config.file=" in path.read_text() for path in (folder / "events").iterdir())
    assert "java" in (folder / "processes-open").read_text()
    assert "ottla" in (folder / "said").read_text()


@pytest.mark.parametrize("options", [SourceOptions, SinkOptions])
def test_a_private_key_in_the_open_is_refused(
    options: type[SourceOptions | SinkOptions], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"kafka.bootstrap.servers": "a:1", "kafka.security.protocol": "SSL"}
    given |= {"subscribe": "t"} if options is SourceOptions else {"topic": "t"}
    given["kafka.ssl.keystore.certificate.chain"] = PEM_CHAIN
    with pytest.raises(Failed, match=r"give kafka\.ssl\.keystore\.key\.file") as caught:
        options.load({**given, "kafka.ssl.keystore.key": PEM_KEY})
    assert KEY not in str(caught.value)
    (tmp_path / "key").write_text(PEM_KEY)
    monkeypatch.setenv("A_KEY", PEM_KEY)
    for more in ({"kafka.ssl.keystore.key.file": str(tmp_path / "key")}, {"kafka.ssl.keystore.key.env": "A_KEY"}):
        made = options.load({**given, **more})
        assert KEY.encode() not in pickle.dumps(made)
        assert made.security.resolve().key.split() == PEM_KEY.split()


def test_what_is_no_secret_is_not_taken_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "name").write_text("visits")
    with pytest.raises(Failed, match=r"there is no option subscribe\.file"):
        SourceOptions.load({"kafka.bootstrap.servers": "a:1", "subscribe.file": str(tmp_path / "name")})


def test_a_registry_finds_its_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "password").write_text("registry-secret\n")
    monkeypatch.setenv("REGISTRY_PASSWORD", "registry-secret")
    for registry in (
        Registry("http://r:1", user="me", password_file=str(tmp_path / "password")),
        Registry("http://r:1", user="me", password_env="REGISTRY_PASSWORD"),
    ):
        assert b"registry-secret" not in pickle.dumps(registry)
        assert registry._password() == "registry-secret"
    with pytest.raises(Failed, match="are both given"):
        Registry("http://r:1", password="x", password_env="REGISTRY_PASSWORD")._password()


def test_options_of_storage(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("storage-secret")
    made = Private.of({"region": "eu", "aws_secret_access_key.file": str(tmp_path / "key"), "session_token": "open-1"})
    assert made.reveal() == {"region": "eu", "aws_secret_access_key": "storage-secret", "session_token": "open-1"}
    assert b"storage-secret" not in pickle.dumps(made)
    assert "storage-secret" not in repr(made)
    assert "open-1" not in repr(made)
    with pytest.raises(Failed, match="No such file"):
        Private.of({"account_key.file": str(tmp_path / "none")})


@pytest.mark.parametrize(
    "name",
    [
        "sasl.jaas.config", "sasl.password", "ssl.key.password", "ssl.keystore.password", "ssl.keystore.key",
        "aws_secret_access_key", "AWS_SESSION_TOKEN", "fs.s3a.secret.key", "fs.s3a.access.key", "account_key",
        "azure_storage_sas_token", "sas", "google_service_account", "basic.auth.user.info", "credentials",
    ],
)  # fmt: skip
def test_secrets_are_known_by_their_names(name: str) -> None:
    assert is_secret(name)
    assert redact({name: "x", f"{name}.file": "/run/x", "topics": "t"}) == {
        name: HIDDEN, f"{name}.file": "/run/x", "topics": "t"
    }  # fmt: skip
    assert find_exposed({name: "x", f"{name}.env": "NAME"}) == [name]


@pytest.mark.parametrize("name", ["key", "value", "keys", "topics", "to.properties", "ssl.keystore.location", "path"])
def test_what_is_no_secret_is_shown(name: str) -> None:
    assert redact({name: "x"}) == {name: "x"}


def test_a_pipeline_takes_them_from_files_on_its_command_line(guarded: tuple[str, str], tmp_path: Path) -> None:
    secret = tmp_path / "jaas"
    secret.write_text(jaas("alice"))
    made_up = ["pipeline", "run", "metrics", "--generate-only", "--count", "5", "--bootstrap", guarded[1]]
    made_up += [
        "--folder",
        str(tmp_path / "run"),
        "-X",
        "security.protocol=SASL_PLAINTEXT",
        "-X",
        "sasl.mechanism=PLAIN",
    ]
    done = command(*made_up, "-X", f"sasl.jaas.config.file={secret}")
    assert "can see" not in done.stderr
    assert len(committed(guarded[0], "metrics")) == 5
    seen = command(*made_up, "-X", f"sasl.jaas.config={jaas('bob')}")
    assert "everybody on this machine can see sasl.jaas.config (by ps): use sasl.jaas.config.file" in seen.stderr
    assert SECRETS["bob"] not in seen.stderr
