"""Check that the cluster answers before a command starts. A client would retry until its timeout, and explain little.

A broker sends its clients to its `advertised.listeners`. If these do not answer from here, every command fails although
`--bootstrap` is right. So the advertised addresses are tried, too.
"""

import socket
from concurrent.futures import ThreadPoolExecutor, as_completed

from ottla.client.cluster import places, silence
from ottla.client.connection import Address, Connection
from ottla.client.failure import Failed, Unreachable
from ottla.client.security import Security
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse

CONNECT_S_MAX = 5.0
ANSWER_S_MAX = 10.0  # a broker that works may be busy for a while
TOLD_S_MAX = 8.0  # the same for an advertised address
PROBES_MAX = 16  # addresses tried at once


def reach(bootstrap: str, security: Security | None, flag: str = "--bootstrap") -> list[str]:
    """The advertised addresses. Raises Failed, with the address and its flag in the message, when no broker answers.

    Without `security` it only checks that the port is open, and returns no addresses.
    """
    reasons: list[str] = []
    for address in places(bootstrap):
        try:
            knock(address)
            return [] if security is None else ask(address, security)
        except Unreachable as error:
            reasons.append(str(error))
        except OSError as error:
            reasons.append(explain(error))
    raise silence(bootstrap, f"{reasons[-1]}; see {flag}")


def ask(address: Address, security: Security) -> list[str]:
    connection = Connection(address, ANSWER_S_MAX, security=security)
    try:
        answer = connection.ask(MetadataRequest(topics=[]), MetadataResponse)
    finally:
        connection.close()
    told = [(broker.host, broker.port) for broker in answer.brokers]
    if told and address not in told:
        check_told(name(address), told, security)
    return [name(one) for one in told]


def check_told(asked: str, told: list[Address], security: Security) -> None:
    """One answer is enough: other brokers may be down."""
    reasons: dict[Address, str] = {}
    pool = ThreadPoolExecutor(PROBES_MAX)
    try:
        probes = {pool.submit(probe, address, security): address for address in told[:PROBES_MAX]}
        for done in as_completed(probes):
            reason = done.result()
            if reason is None:
                return
            reasons[probes[done]] = reason
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    places_told = ", ".join(f"{name(address)} ({reason})" for address, reason in reasons.items())
    raise Failed(
        f"{asked} answers, but sends clients to {places_told}, which does not answer: correct advertised.listeners "
        "of the broker, or make that address reachable from here"
    )


def probe(address: Address, security: Security) -> str | None:
    """Why the address does not answer; None if it does."""
    try:
        knock(address)
        Connection(address, TOLD_S_MAX, security=security).close()
    except Unreachable:
        return "no answer"
    except OSError as error:
        return explain(error)
    except Failed:  # it does answer
        return None
    return None


def knock(address: Address) -> None:
    socket.create_connection(address, timeout=CONNECT_S_MAX).close()


def explain(error: OSError) -> str:
    return f"no answer within {CONNECT_S_MAX:.0f} seconds" if isinstance(error, TimeoutError) else str(error.strerror)


def name(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
