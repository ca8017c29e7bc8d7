"""What the whole suite shares: how many worlds the seeded and property tests visit.

SEEDS=1000 (as `make sim` and `make fuzz` set it) raises the number of examples of every Hypothesis test; a failing
example is printed as code that repeats it. The profile "plain" is the everyday one, for two cores and a few minutes.
"""

import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("plain", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("many", parent=settings.get_profile("plain"), max_examples=int(os.environ.get("SEEDS", "50")))
settings.load_profile("many" if "SEEDS" in os.environ else "plain")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and ("seed" in item.fixturenames or item.get_closest_marker("hypothesis")):
            item.add_marker(pytest.mark.seeded)
