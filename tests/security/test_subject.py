"""Subjects of certificates, as Java's X500Principal.getName() writes them."""

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from ottla.security.subject import Malformed, subject_of
from ottla.testing.certificates import Certificate

AUTHORITY = Certificate("authority")


def named(*attributes: tuple[x509.ObjectIdentifier, str]) -> bytes:
    return Certificate(x509.Name([x509.NameAttribute(*one) for one in attributes]), AUTHORITY).der


def test_the_last_part_comes_first() -> None:
    made = named(
        (NameOID.COUNTRY_NAME, "CZ"),
        (NameOID.STATE_OR_PROVINCE_NAME, "Bohemia"),
        (NameOID.LOCALITY_NAME, "Prague"),
        (NameOID.ORGANIZATION_NAME, "Example, Inc."),
        (NameOID.ORGANIZATIONAL_UNIT_NAME, 'Data "and" <more>'),
        (NameOID.DOMAIN_COMPONENT, "example"),
        (NameOID.USER_ID, "17"),
        (NameOID.COMMON_NAME, "Žofie"),
    )
    assert subject_of(made) == (
        'CN=Žofie,UID=17,DC=example,OU=Data \\"and\\" \\<more\\>,O=Example\\, Inc.,L=Prague,ST=Bohemia,C=CZ'
    )


def test_an_attribute_that_java_has_no_word_for_is_its_number() -> None:
    made = named((NameOID.EMAIL_ADDRESS, "a@b"), (NameOID.COMMON_NAME, "a"))
    assert subject_of(made) == "CN=a,1.2.840.113549.1.9.1=#1603614062"


@pytest.mark.parametrize(("text", "written"), [(" a ", "\\ a\\ "), ("#a", "\\#a"), ("a+b;c\\d", "a\\+b\\;c\\\\d")])
def test_signs_with_a_meaning_are_escaped(text: str, written: str) -> None:
    assert subject_of(named((NameOID.COMMON_NAME, text))) == f"CN={written}"


def test_several_attributes_in_one_part() -> None:
    part = x509.RelativeDistinguishedName(
        [x509.NameAttribute(NameOID.COMMON_NAME, "a"), x509.NameAttribute(NameOID.USER_ID, "1")]
    )
    made = Certificate(x509.Name([part]), AUTHORITY).der
    assert set(subject_of(made).split("+")) == {"CN=a", "UID=1"}


def test_torn_bytes_are_refused() -> None:
    whole = named((NameOID.COMMON_NAME, "a"))
    for size in range(len(whole)):
        with pytest.raises(Malformed):
            subject_of(whole[:size])
