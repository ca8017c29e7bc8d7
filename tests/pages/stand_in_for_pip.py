"""What `pip install` is on the pages' runs: Ottla is there already, so only its extras are looked at."""

import re
import sys
from importlib.metadata import metadata

KNOWN = metadata("ottla").get_all("Provides-Extra") or []

for argument in sys.argv[1:]:
    for extras in re.findall(r"ottla\[([\w,]+)\]", argument):
        assert set(extras.split(",")) <= set(KNOWN), f"{argument}: there is no such extra"
