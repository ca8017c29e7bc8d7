"""Human-readable sizes and rates: `10MB`, `1.5 GiB`, and back.

They are printed in powers of 1024, as Kafka counts: its options (`segment.bytes=1073741824`) and the "MB/sec" of its
tools. The names say so: KiB, MiB. Input may be of either kind: 1 kB is 1000 bytes, 1 KiB is 1024.
"""

import re

UNITS = {
    "": 1,
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "tb": 1000**4,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
}


def parse_size(text: str) -> int:
    """The number of bytes. ValueError with a sentence for the user."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*?)(?:/s)?\s*", text)
    if match is None or match[2].lower() not in UNITS:
        raise ValueError(f"{text}: expected a size such as 500kB, 10MB or 1GiB")
    return int(float(match[1]) * UNITS[match[2].lower()])


def format_size(size: float) -> str:
    """With one decimal below 100: 1.5 MiB, 150 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1023.5 or unit == "TiB":
            break
        size /= 1024
    return f"{size:,.0f} {unit}" if unit == "B" or abs(size) >= 99.95 else f"{size:.1f} {unit}"
