"""Sizes and rates as people write them: `10MB`, `1.5 GiB`, and back."""

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
    """Bytes. Raises ValueError with a sentence for the reader."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*?)(?:/s)?\s*", text)
    if match is None or match[2].lower() not in UNITS:
        raise ValueError(f"{text}: expected a size such as 500kB, 10MB or 1GiB")
    return int(float(match[1]) * UNITS[match[2].lower()])


def format_size(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if abs(size) < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
