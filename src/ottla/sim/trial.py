"""One seed from beginning to end: which cluster it is, how its story went, and how to hear it again."""

from __future__ import annotations

import gc
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.sim.loop import Deadlock
from ottla.sim.world import World, Wrong

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Where there is one: the files of a story are small and soon gone. Their folder has a random name.
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
    """Tell the story of a seed. `options` are those of `World`, for another story of the same seed."""
    memory = MEMORY if MEMORY.is_dir() else None
    with collect_afterwards(), tempfile.TemporaryDirectory(prefix="ottla-sim-", dir=memory) as folder:
        world = World(seed, Path(folder), trace=trace, **options)
        began = world.loop.time()
        wrong = None
        try:
            world.run()
        except (Wrong, Deadlock) as error:
            wrong = str(error)
        acked = sum(len(story.acked) for story in world.history.partitions.values())
        return Outcome(seed, wrong, world.loop.digest, world.loop.callbacks, world.loop.time() - began, acked)


@contextmanager
def collect_afterwards() -> Iterator[None]:
    """Leave garbage until the end: to look for it all the time takes a fifth of a story, which is short."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
