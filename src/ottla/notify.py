"""Reports the state of the broker to systemd (`Type=notify`): one datagram to the socket named in NOTIFY_SOCKET.

    READY=1      it answers requests
    STOPPING=1   it is stopping

Without that variable nothing is sent. Failures are ignored: a broker works without a service manager.
"""

import os
import socket
from contextlib import suppress

VARIABLE = "NOTIFY_SOCKET"


def notify(state: str) -> None:
    address = os.environ.get(VARIABLE, "")
    if not address.startswith(("/", "@")):
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.setblocking(False)
        out.sendto(state.encode(), f"\0{address[1:]}" if address.startswith("@") else address)
