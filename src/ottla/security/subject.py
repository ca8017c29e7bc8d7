"""The subject of a certificate as Kafka shows it: in the form of RFC 2253, as Java writes it.

    CN=writer,OU=Data,O=Example,C=CZ

Java knows nine attributes by name; others appear as their OID and the bytes of the value, such as
`1.2.840.113549.1.9.1=#1603…`. OpenSSL has verified the certificate before: this only finds its subject.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

SEQUENCE: Final = 0x30
VERSION: Final = 0xA0
OBJECT: Final = 0x06
KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
# The encoding of a string, by its tag.
TEXTS: Final = {0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1C: "utf-32-be", 0x1E: "utf-16-be"}
ESCAPED: Final = frozenset(',+"\\<>;')


class Malformed(ValueError):
    """The bytes are not a certificate."""


def subject_of(certificate: bytes) -> str:
    """The subject of a certificate in DER."""
    try:
        (_, whole, _), *_ = elements(certificate)
        (_, signed, _), *_ = elements(whole)
        fields = list(elements(signed))
        first = 1 if fields[0][0] == VERSION else 0
        # serial number, algorithm, issuer, validity, subject
        subject = fields[first + 4][1]
        names = [name_of(part) for _, part, _ in elements(subject)]
    except (IndexError, ValueError, LookupError) as error:
        raise Malformed(f"not a certificate: {error}") from None
    return ",".join(reversed(names))


def elements(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """The elements of a DER sequence: tag, content, and the whole encoded element."""
    position = 0
    while position < len(data):
        start, tag, size = position, data[position], data[position + 1]
        position += 2
        if size & 0x80:
            count = size & 0x7F
            size = int.from_bytes(data[position : position + count])
            position += count
        if position + size > len(data):
            raise Malformed("it ends too early")
        yield tag, data[position : position + size], data[start : position + size]
        position += size


def name_of(part: bytes) -> str:
    """One part of a name; most have one attribute, several are joined by a plus sign."""
    return "+".join(attribute_of(attribute) for _, attribute, _ in elements(part))


def attribute_of(attribute: bytes) -> str:
    (kind, number, _), (tag, value, raw) = elements(attribute)
    if kind != OBJECT:
        raise Malformed("an attribute without a type")
    dotted = dotted_of(number)
    keyword = KEYWORDS.get(dotted)
    if keyword is None or tag not in TEXTS:
        return f"{keyword or dotted}=#{raw.hex()}"
    return f"{keyword}={escape(value.decode(TEXTS[tag]))}"


def dotted_of(number: bytes) -> str:
    values, value = [], 0
    for byte in number:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            values.append(value)
            value = 0
    first = min(values[0] // 40, 2)
    return ".".join(map(str, (first, values[0] - 40 * first, *values[1:])))


def escape(text: str) -> str:
    """RFC 2253 escaping: special characters, and spaces at either end."""
    made = "".join(f"\\{sign}" if sign in ESCAPED else sign for sign in text)
    if made.startswith(("#", " ")):
        made = f"\\{made}"
    if made.endswith(" ") and len(text) > 1:
        made = f"{made[:-1]}\\ "
    return made
