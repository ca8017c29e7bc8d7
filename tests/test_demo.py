"""`make run` tells the truth, and ends."""

import subprocess
import sys


def test_the_demo_shows_records_a_group_and_transactions_and_that_they_survive() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ottla.demo"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    before, after = done.stdout.split("The broker stops, and starts again")
    assert before.count("offset 0: Dear Max,") == 2, "read by assignment, then by the group"
    assert "group postmen: Stable, members: postman at 127.0.0.1; partition 0 committed 2 of 3, lag 1 records" in before
    assert "offset 0: Dear Max," in after
    assert "PS: exactly once." in after
    assert "(torn up)" not in done.stdout
    assert "group postmen: Empty, members: nobody; partition 0 committed 2 of 7" in after
