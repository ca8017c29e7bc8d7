"""Lets the Python processes of Spark start fast; Python imports this file at its start if its folder is in PYTHONPATH.

Spark puts a zip of PySpark first in their path. Modules in it have no bytecode, so that each of these processes would
compile them again, which takes more than a second. The same modules are in the package that the zip belongs to.
"""

import sys
from pathlib import Path


def is_needed(entry: str) -> bool:
    """Whether it is anything else than a zip in `pyspark/python/lib` of an installed package."""
    lib = Path(entry).parent
    return not (entry.endswith(".zip") and lib.parts[-3:] == ("pyspark", "python", "lib") and lib.is_dir())


sys.path[:] = [entry for entry in sys.path if is_needed(entry)]
