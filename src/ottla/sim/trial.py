"""One seed from beginning to end: its cluster, its outcome, and how to repeat it."""

from __future__ import annotations

import gc
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.sim.loop import Deadlock
from ottla.sim.world import BrokenInvariant, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Used if it exists: the files of a run are small and short-lived. Their folder has a random name.
MEMORY = Path("/dev/shm")  # nosec B108 # see above


class Outcome(NamedTuple):
    seed: int
    wrong: str | None
    digest: int
    callbacks: int
    seconds: float  # of virtual time
    acked: int

    def __str__(self) -> str:
        result = "fine" if self.wrong is None else f"WRONG: {self.wrong}"
        return f"seed {self.seed}: {result} ({self.seconds:.0f} s, {self.acked} acknowledged, {self.digest:08x})"


def tell(seed: int, *, trace: Callable[[str], None] | None = None, **options: Any) -> Outcome:
    """Run a seed. `options` are those of `World`, to vary the run of a seed."""
    memory = MEMORY if MEMORY.is_dir() else None
    with collect_afterwards(), tempfile.TemporaryDirectory(prefix="ottla-sim-", dir=memory) as folder:
        world = World(seed, Path(folder), trace=trace, **options)
        began = world.loop.time()
        wrong = None
        try:
            world.run()
        except (BrokenInvariant, Deadlock) as error:
            wrong = str(error)
        acked = sum(len(story.acked) for story in world.history.partitions.values())
        return Outcome(seed, wrong, world.loop.digest, world.loop.callbacks, world.loop.time() - began, acked)


@contextmanager
def collect_afterwards() -> Iterator[None]:
    """Collect garbage only at the end: doing it all the time takes a fifth of a run, which is short."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
