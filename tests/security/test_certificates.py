"""What a TLS listener reads: every kind of store, what is refused and with which words, and reading again."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import pytest

from ottla.config import ConfigError, load
from ottla.security.certificates import Certificates, openssl_name, server_context
from ottla.testing.certificates import PASSWORD, Certificate

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.config import Listener

AUTHORITY = Certificate("authority")
SERVER = Certificate("broker", AUTHORITY, hosts=("127.0.0.1",))


def listener(**options: str) -> Listener:
    pairs = {name.replace("_", "."): text for name, text in options.items()}
    return load({"listeners": "SSL://127.0.0.1:0", **pairs}).opened[0]


def shown(found: Certificates) -> bytes:
    """The certificate that a client gets to see."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours, theirs = client.wrap_bio(down, up), found.context.wrap_bio(up, down, server_side=True)
    for _ in range(4):
        for side in (ours, theirs):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    certificate = ours.getpeercert(binary_form=True)
    assert certificate is not None
    return certificate


def test_pem_in_a_file_with_and_without_a_password(tmp_path: Path) -> None:
    bare, locked = SERVER.write(tmp_path / "a.pem"), SERVER.write(tmp_path / "b.pem", PASSWORD)
    assert shown(Certificates(listener(ssl_keystore_location=str(bare)))) == SERVER.der
    opened = listener(ssl_keystore_location=str(locked), ssl_keystore_type="PEM", ssl_key_password=PASSWORD)
    assert shown(Certificates(opened)) == SERVER.der


def test_pem_in_the_options_on_one_line() -> None:
    chain, key = SERVER.pem.replace("\n", " "), SERVER.key_pem().replace("\n", " ")
    assert shown(Certificates(listener(ssl_keystore_certificate_chain=chain, ssl_keystore_key=key))) == SERVER.der


def test_pkcs12(tmp_path: Path) -> None:
    path = SERVER.write_pkcs12(tmp_path / "a.p12")
    assert shown(Certificates(listener(ssl_keystore_location=str(path), ssl_keystore_password=PASSWORD))) == SERVER.der


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ssl_keystore_location": "{}/keys.jks"}, "keytool -importkeystore"),
        ({"ssl_keystore_location": "{}/none.pem"}, "No such file"),
        ({"ssl_keystore_location": "{}/torn.pem"}, "expected a PEM key with its certificates"),
        ({"ssl_keystore_location": "{}/locked.pem"}, "ssl.key.password if it is encrypted"),
        ({"ssl_keystore_location": "{}/store.p12", "ssl_keystore_password": "other"}, "password is another one"),
        (
            {"ssl_keystore_location": "{}/bare.pem", "ssl_keystore_type": "PEM", "ssl_keystore_password": "x"},
            "a PEM store has none",
        ),
        (
            {"ssl_keystore_location": "{}/bare.pem", "ssl_client_auth": "required", "ssl_truststore_location": "{}/x"},
            "a JKS store cannot be read",
        ),
        ({"ssl_keystore_location": "{}/bare.pem", "ssl_cipher_suites": "TLS_AES_128_GCM_SHA256"}, "all TLS 1.3 suites"),
        ({"ssl_keystore_location": "{}/bare.pem", "ssl_cipher_suites": "NONSENSE"}, "OpenSSL does not know NONSENSE"),
        ({"ssl_keystore_location": "{}/bare.pem", "ssl_principal_mapping_rules": "RULE"}, "neither RULE"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_and_says_what_to_do(
    tmp_path: Path, options: dict[str, str], words: str
) -> None:
    SERVER.write(tmp_path / "bare.pem")
    SERVER.write(tmp_path / "locked.pem", PASSWORD)
    SERVER.write_pkcs12(tmp_path / "store.p12")
    (tmp_path / "torn.pem").write_text(SERVER.key_pem()[:-40])
    with pytest.raises(ConfigError, match=words) as refused:
        Certificates(listener(**{name: text.format(tmp_path) for name, text in options.items()}))
    assert PASSWORD not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "least", "most"),
    [
        ({}, "TLSv1_2", "TLSv1_3"),
        ({"ssl_enabled_protocols": "TLSv1.3"}, "TLSv1_3", "TLSv1_3"),
        ({"ssl_enabled_protocols": "TLSv1.2"}, "TLSv1_2", "TLSv1_2"),
        ({"ssl_cipher_suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"}, "TLSv1_2", "TLSv1_2"),
    ],
)
def test_versions_and_suites(tmp_path: Path, options: dict[str, str], least: str, most: str) -> None:
    path = SERVER.write(tmp_path / "a.pem")
    context = server_context(listener(ssl_keystore_location=str(path), **options).security)
    assert (context.minimum_version.name, context.maximum_version.name) == (least, most)


@pytest.mark.parametrize("version", ["TLSv1", "TLSv1.1", "SSLv3"])
def test_old_versions_are_not_spoken(version: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.enabled\.protocols"):
        listener(ssl_keystore_location="x.pem", ssl_enabled_protocols=version)


@pytest.mark.parametrize(
    ("suite", "name"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_256_CBC_SHA256", "DHE-RSA-AES256-SHA256"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_names_of_suites(suite: str, name: str) -> None:
    assert openssl_name(suite) == name


def test_a_file_that_changed_is_read_again_and_a_torn_one_leaves_the_former(tmp_path: Path) -> None:
    path = SERVER.write(tmp_path / "a.pem")
    wanted = listener(ssl_keystore_location=str(path))
    found = Certificates(wanted)
    assert not found.renew(wanted.security)
    path.write_text("torn")
    with pytest.raises(ConfigError):
        found.renew(wanted.security)
    assert shown(found) == SERVER.der
    path.unlink()
    with pytest.raises(ConfigError):
        found.renew(wanted.security)
    assert shown(found) == SERVER.der
    newer = Certificate("newer", AUTHORITY)
    newer.write(path)
    assert found.renew(wanted.security)
    assert shown(found) == newer.der
