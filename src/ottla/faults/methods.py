"""The methods that a broker in a test has: the same whether it runs on the loop, in a thread or in a process."""

from __future__ import annotations

from ottla.faults.fault import Fault, find_api, find_code


class FaultMethods:
    """Faults of one API happen in the order in which they were asked for. None of them outlives the broker's run."""

    _ordered = False  # whether there may be any

    def fail_next(self, api: str, code: int | str, *, times: int = 1) -> None:
        """Answer the next requests of an API with this error, for all that they ask for; nothing is carried out.

        A request that asks for nothing that could fail, such as a Metadata request without topics, does not count.
        """
        self._add(Fault(find_api(api), times, code=find_code(code)))

    def delay_next(self, api: str, seconds: float, *, times: int = 1) -> None:
        """Carry the next requests out at once, and answer them so much later."""
        self._add(Fault(find_api(api), times, seconds=seconds))

    def drop_next(self, api: str, *, times: int = 1, handled: bool = False) -> None:
        """Close the connection instead of an answer. `handled`: the request is carried out before, its answer lost."""
        self._add(Fault(find_api(api), times, drop=True, handled=handled))

    def pending_faults(self) -> dict[str, int]:
        """How many are still to come, by API."""
        return self._order("count")

    def clear_faults(self) -> None:
        """Forget those that did not happen; answers that are delayed leave now."""
        if self._ordered:
            self._order("clear")
            self._ordered = False

    def _add(self, fault: Fault) -> None:
        self._order(fault)
        self._ordered = True

    def _order(self, order: Fault | str) -> dict[str, int]:
        """Have the broker take up a fault, or `count` or `clear` them; returns how many are to come."""
        raise NotImplementedError
