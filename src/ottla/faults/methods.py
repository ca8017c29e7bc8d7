"""Fault methods of a broker in a test: the same whether it runs on the loop, in a thread or in a process."""

from __future__ import annotations

from ottla.faults.fault import Fault, find_api, find_code


class FaultMethods:
    """Faults of one API happen in the order in which they were set. All of them end when the broker stops."""

    _ordered = False  # whether any fault was set

    def fail_next(self, api: str, code: int | str, *, times: int = 1) -> None:
        """Answer the next requests of an API with this error, for every item in them; nothing is carried out.

        A request without items that could fail, such as a Metadata request without topics, does not count.
        """
        self._add(Fault(find_api(api), times, code=find_code(code)))

    def delay_next(self, api: str, seconds: float, *, times: int = 1) -> None:
        """Carry out the next requests at once, but answer them this many seconds later."""
        self._add(Fault(find_api(api), times, seconds=seconds))

    def drop_next(self, api: str, *, times: int = 1, handled: bool = False) -> None:
        """Close the connection instead of responding. `handled`: carry out the request first; its response is lost."""
        self._add(Fault(find_api(api), times, drop=True, handled=handled))

    def pending_faults(self) -> dict[str, int]:
        """How many faults are still pending, by API."""
        return self._order("count")

    def clear_faults(self) -> None:
        """Remove pending faults. Delayed responses are sent now."""
        if self._ordered:
            self._order("clear")
            self._ordered = False

    def _add(self, fault: Fault) -> None:
        self._order(fault)
        self._ordered = True

    def _order(self, order: Fault | str) -> dict[str, int]:
        """Send a fault, `count` or `clear` to the broker. Returns the number of pending faults by API."""
        raise NotImplementedError
