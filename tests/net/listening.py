"""Opens listeners for the tests of this folder."""

from ottla.net.listener import Admission, Listener


def limited(total_max: int, per_address_max: int, overrides: dict[str, int]) -> Admission:
    made = Admission()
    made.limit(total_max, per_address_max, overrides)
    return made


def port_of(opened: Listener) -> int:
    assert opened._socket is not None
    port: int = opened._socket.getsockname()[1]
    return port
