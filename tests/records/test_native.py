from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ottla.records import native
from ottla.records.native import crc32c


def test_the_checksum_is_castagnolis() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"6789", crc32c(b"12345")) == 0xE3069283
    assert crc32c(memoryview(b"x123456789")[1:]) == 0xE3069283


def test_loading_it_does_not_load_the_package_around_it() -> None:
    code = "import sys, ottla.records.validate; print({'argparse', 'email', 'cramjam'} & sys.modules.keys())"
    source = str(Path(native.__file__).parents[2])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": source})
    assert (done.stdout, done.stderr) == ("set()\n", "")
