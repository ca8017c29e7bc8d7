"""`ottla serve`: one broker as a process, from the command line to the exit code.

    defaults < --config FILE < OTTLA_* in the environment < --set name=value < --data, --port, --host, --node-id,
    --zookeeper

Prints one block for people on stdout when the broker answers, and log lines on stderr. SIGTERM, SIGINT and SIGHUP drain
and stop, as in Apache Kafka; a second signal stops at once. SIGHUP is sent when a terminal is closed; if it was ignored
before (`nohup`), it still is. systemd is notified when the broker is ready (notify.py).

Exit codes: 0 stopped on request, 1 could not run, 2 invalid command line or options.

The time from exec to the first acknowledged produce has a budget of 300 ms: nothing may be imported here that a broker
does not need, which is why this command does not use Typer.
"""

import argparse
import asyncio
import errno
import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ottla import __version__, descriptors, logging_setup
from ottla.clock import SystemClock
from ottla.cluster.metadata_store import StoreError, Unavailable
from ottla.config import (
    BrokerConfig,
    ConfigError,
    Refusals,
    load,
    parse_environment,
    parse_properties,
    parse_settings,
)
from ottla.data_folder import FolderInUse, FolderLocks, default_folder, is_memory, memory_folder, remove
from ottla.errors import BrokerError
from ottla.garbage import Garbage
from ottla.log.checkpoints import CorruptCheckpointError
from ottla.notify import notify

if TYPE_CHECKING:
    from ottla.broker import Broker
    from ottla.console.beside import Beside
    from ottla.security.first_users import FirstUser

PORT = 9092
CONSOLE = "127.0.0.1:8190"
EVERYWHERE = ("", "0.0.0.0", "::")  # nosec B104 # hosts to recognise, not to listen on
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
DEAF_S_MAX = 20.0  # no request may block the loop for more than a fraction of a second

logger = logging.getLogger("ottla.serve")


class CommandLineError(ConfigError):
    """The command line is invalid."""


class ServePlan(NamedTuple):
    config: BrokerConfig
    folders: list[Path]
    memory: Path | None  # the folder to remove at the end
    ready: int | None
    until_eof: bool
    control: int | None = None
    console: list[str] | None = None  # arguments of the web console, run next to the broker
    first_users: tuple["FirstUser", ...] = ()


def serve(arguments: list[str]) -> int:
    gc.disable()  # nothing becomes garbage while modules load; see `live`
    options = parse(arguments)
    logging_setup.set_up(options.log_level, options.log_format)
    try:
        plan = make_plan(options, os.environ)
    except ConfigError as error:
        return complain(str(error), 2)
    if options.check:
        return show_check(plan, memory=options.memory)
    try:
        locks = FolderLocks(plan.folders)
    except FolderInUse as error:
        return complain(str(error), 1)
    except OSError as error:
        reason = "is a file" if isinstance(error, FileExistsError) else f"cannot be used: {error.strerror}"
        return complain(f"the data folder {error.filename} {reason}; choose another with --data", 1)
    try:
        return run(plan)
    except OSError as error:
        return complain(explain(error, plan.config), 1)
    except ConfigError as error:  # in a file that an option names, such as a keystore
        return complain(str(error), 2)
    except BrokerError as error:
        return complain(error.message or error.code.name, 1)
    except Unavailable as error:
        hint = "without zookeeper.connect, a broker is a single node and needs no ZooKeeper"
        return complain(f"{error}; {hint}" if plan.config.zookeeper_connect else str(error), 1)
    except (StoreError, CorruptCheckpointError) as error:
        return complain(str(error), 1)
    finally:
        locks.release()
        if plan.memory:
            remove(plan.memory)


def parse(arguments: list[str]) -> argparse.Namespace:
    reader = parser()
    options, strange = reader.parse_known_args(arguments)
    if strange:
        hint = ""
        if "--override" in strange:  # as with Kafka's own start script
            hint = "; use --set NAME=VALUE"
        elif strange[0].endswith(".properties"):
            hint = f"; use --config {strange[0]}"
        reader.error(f"unrecognized arguments: {' '.join(strange)}{hint}")
    return options


def parser() -> argparse.ArgumentParser:
    here = argparse.ArgumentParser(prog="ottla serve", description="Run a broker until it is stopped.")
    add = here.add_argument
    add("--data", metavar="FOLDER", help="the data folder (default: $OTTLA_DATA, else ~/.local/share/ottla)")
    add("--memory", action="store_true", help="keep the data in memory; it is lost when the broker stops")
    add("--port", type=int, metavar="N", help=f"listen on this port, 0 for any free one (default: {PORT})")
    add("--host", metavar="ADDRESS", help="listen on this address only (default: on all addresses of this machine)")
    add(
        "--node-id",
        type=int,
        metavar="N",
        help="the broker id (default: 1; in a cluster a new id)",
    )
    add("--zookeeper", metavar="HOST:PORT[,...][/PATH]", help="join the cluster in this ZooKeeper")
    add("--config", metavar="FILE", help="a server.properties file with Kafka's option names")
    add("--set", action="append", default=[], metavar="NAME=VALUE", help="one option by Kafka's name; may be repeated")
    add(
        "--console",
        nargs="?",
        const=CONSOLE,
        metavar="HOST:PORT",
        help=f"also serve the web console on this address (default: {CONSOLE}); see `ottla console --help`",
    )
    add("--console-changes", action="store_true", help="allow changes in the console; without it, it is read-only")
    add(
        "--add-scram",
        action="append",
        default=[],
        metavar="MECHANISM=[name=...,password-file=...]",
        help="create a SCRAM user at startup, unless it already exists; may be repeated",
    )
    add("--check", action="store_true", help="check the options, print all errors in them, and do not start")
    add("--log-level", choices=logging_setup.LEVELS, default="info")
    add("--log-format", choices=logging_setup.FORMATS, default="text")
    add(
        "--ready-fd",
        type=int,
        metavar="N",
        help="when the broker is ready, write one line of JSON to this descriptor and close it",
    )
    add(
        "--control-fd",
        type=int,
        metavar="N",
        help="receive commands of a test on this descriptor, such as injected faults",
    )
    add("--until-eof", action="store_true", help="stop when standard input ends, that is, when the parent process ends")
    return here


def make_plan(options: argparse.Namespace, environment: Mapping[str, str]) -> ServePlan:
    """ConfigError has a line for every error, from all sources."""
    refusals = Refusals()
    pairs: dict[str, str] = {}
    settings: dict[str, str] = {}
    with refusals:
        pairs |= from_file(options.config) if options.config else {}
    with refusals:
        pairs |= parse_environment(environment)
    with refusals:
        settings = parse_settings(options.set)
    pairs |= settings
    if "listeners" in settings and (options.port is not None or options.host is not None):
        refusals.add("--set listeners and --port or --host name different addresses: choose one")
    if options.data and {"log.dirs", "log.dir"} & settings.keys():
        refusals.add("--set log.dirs and --data name different folders: choose one")
    if options.node_id is not None:
        pairs.pop("broker.id", None)
        pairs["node.id"] = str(options.node_id)
    if options.zookeeper is not None:
        if "zookeeper.connect" in settings:
            refusals.add("--set zookeeper.connect and --zookeeper name different clusters: choose one")
        pairs["zookeeper.connect"] = options.zookeeper
    if options.port is not None or options.host is not None or "listeners" not in pairs:
        with refusals:
            pairs["listeners"] = listener(options.host or "", PORT if options.port is None else options.port)
    return choose_folders(options, environment, pairs, refusals)


def choose_folders(
    options: argparse.Namespace, environment: Mapping[str, str], pairs: dict[str, str], refusals: Refusals
) -> ServePlan:
    if options.memory and options.data:
        refusals.add("--memory keeps nothing and --data keeps everything: choose one")
    if options.data:
        pairs["log.dirs"] = options.data
    elif not options.memory and not pairs.get("log.dirs") and not pairs.get("log.dir"):
        pairs["log.dirs"] = str(default_folder(environment))
    with refusals:
        load(pairs)  # check first, so that an invalid option leaves no folder behind
    users: tuple[FirstUser, ...] = ()
    with refusals:
        users = first_users(options.add_scram, until_eof=options.until_eof)
    refusals.raise_all()
    memory = memory_folder() if options.memory and not options.check else None
    if memory:
        pairs["log.dirs"] = str(memory)
    config = load(pairs)
    check_alone(config)
    return ServePlan(
        config,
        [Path(name) for name in config.log_dirs],
        memory,
        options.ready_fd,
        options.until_eof,
        options.control_fd,
        console(options, config),
        users,
    )


def console(options: argparse.Namespace, config: BrokerConfig) -> list[str] | None:
    if options.console is None:
        if options.console_changes:
            raise CommandLineError("--console-changes needs --console")
        return None
    changes = ["--allow-changes"] if options.console_changes else []
    zookeeper = ["--zookeeper", config.zookeeper_connect] if config.zookeeper_connect else []
    return ["--listen", options.console, *changes, *zookeeper]


def first_users(texts: list[str], *, until_eof: bool) -> tuple["FirstUser", ...]:
    if not texts:
        return ()
    import secrets

    from ottla.security.first_users import parse_first_user

    def read(path: str) -> str:
        if path != "-":
            with open(path, encoding="utf-8") as file:
                return file.readline()
        if until_eof:
            raise CommandLineError("--add-scram: with --until-eof, standard input has no password")
        return sys.stdin.readline()

    return tuple(parse_first_user(text, read, secrets.token_bytes) for text in texts)


def show_check(plan: ServePlan, *, memory: bool) -> int:
    """Print what would run, in one line, and options without effect. Keystores and logins are read, too."""
    try:
        read_security(plan.config)
    except ConfigError as error:
        return complain(str(error), 2)
    for notice in plan.config.notices:
        print(notice)
    place = "memory" if memory else ", ".join(map(str, plan.folders))
    print(f"the options are fine: {','.join(plan.config.listeners)}, data in {place}")
    return 0


def read_security(config: BrokerConfig) -> None:
    """What a start would read of certificates, keys and logins. ConfigError if a part is missing or invalid."""
    if any(listener.encrypted or listener.authenticated for listener in config.opened):
        import secrets

        from ottla.net.doors import Doors

        Doors(config, SystemClock(), secrets.token_bytes)
    if config.zookeeper_connect and config.inter_broker.protocol != "PLAINTEXT":
        from ottla.security.credentials import Credentials

        Credentials(config.inter_broker)


def check_alone(config: BrokerConfig) -> None:
    """Refuse to start the folder of a standalone broker as a cluster member: the cluster does not know its topics."""
    if not config.zookeeper_connect:
        return
    from ottla.founding.alone import METADATA_FILE

    folder = config.log_dirs[0]
    if os.path.exists(os.path.join(folder, METADATA_FILE)):
        command = f"ottla cluster join --data {folder} --zookeeper {config.zookeeper_connect}"
        raise CommandLineError(
            f"{folder} belongs to a standalone broker. To make it the first member of a cluster: {command}"
        )


def from_file(name: str) -> dict[str, str]:
    try:
        return parse_properties(Path(name).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise CommandLineError(f"--config {name}: {getattr(error, 'strerror', None) or error}") from error


def listener(host: str, port: int) -> str:
    if not 0 <= port <= 65535:
        raise CommandLineError(f"--port {port}: a port is a number from 0 to 65535")
    return f"PLAINTEXT://[{host}]:{port}" if ":" in host else f"PLAINTEXT://{host}:{port}"


def run(plan: ServePlan) -> int:
    import uvloop

    descriptors.raise_limit()
    descriptors.make_room()  # while there is only one thread
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(live(plan))


async def live(plan: ServePlan) -> int:
    from ottla.broker import Broker

    stop, left = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    listen_for_signals(loop, stop)
    if plan.until_eof:
        loop.add_reader(sys.stdin.fileno(), stop_at_eof, stop, left)
    if plan.config.zookeeper_connect:  # it may take a while
        logger.info("connecting to ZooKeeper", extra={"servers": plan.config.zookeeper_connect})
    broker, beside, control = Broker(plan.config, first_users=plan.first_users), None, None
    starting, stopping = asyncio.ensure_future(broker.start()), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            if plan.control is not None:
                from ottla.faults.control import ControlServer

                control = ControlServer(plan.control, broker)
            announce(broker, plan)
            notify(f"READY=1\nSTATUS=node {broker.node_id} of cluster {broker.cluster_id}")
            beside = start_console(broker, plan)
            Garbage().start()  # objects from startup live as long as the process
            await stopping
        return 0
    finally:
        stopping.cancel()
        notify("STOPPING=1")
        if not starting.done():
            cut_short(plan)
        if control is not None:
            control.close()
        if beside is not None:
            await loop.run_in_executor(None, beside.stop)
        await broker.stop()
        if left.is_set():  # the parent is gone, so remove its folder in memory
            for folder in filter(is_memory, plan.folders):
                remove(folder)


def start_console(broker: "Broker", plan: ServePlan) -> "Beside | None":
    if plan.console is None:
        return None
    from ottla.console.beside import Beside

    addresses = [f"{reachable(host)}:{port}" for _, host, port in broker.addresses]
    metrics = ["--metrics", f"{broker.metrics_url}/metrics"] if broker.metrics_url else []
    return Beside(addresses[0], [*plan.console, *metrics])


def cut_short(plan: ServePlan) -> None:
    """Exit during startup: threads may read logs for minutes, and can be interrupted anywhere."""
    if plan.memory:
        remove(plan.memory)
    logging.shutdown()
    os._exit(0)


def listen_for_signals(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """Wait for signals in a thread, which receives them even if the loop is busy.

    The first signal asks the loop to stop. A second one, or a loop that does not react for a while, ends the process at
    once: all acknowledged records are found at the next start, as after any crash.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    heeded = [one for one in SIGNALS if signal.getsignal(one) is not signal.SIG_IGN]
    signal.pthread_sigmask(signal.SIG_BLOCK, heeded)  # in every thread that starts from here on
    threading.Thread(target=wait_for_signals, args=(loop, stop, heeded), name="signals", daemon=True).start()


def wait_for_signals(loop: asyncio.AbstractEventLoop, stop: asyncio.Event, heeded: list[signal.Signals]) -> None:
    number = signal.Signals(signal.sigwait(heeded))
    deaf = threading.Timer(DEAF_S_MAX, give_up, (number,))
    deaf.daemon = True
    deaf.start()

    def ask_to_stop() -> None:
        deaf.cancel()
        logger.info("stopping", extra={"signal": number.name})
        stop.set()

    with suppress(RuntimeError):  # the loop has ended already
        loop.call_soon_threadsafe(ask_to_stop)
    end(signal.Signals(signal.sigwait(heeded)))


def give_up(number: signal.Signals) -> None:
    logger.error("the broker is too busy to stop in good order: it ends now")
    end(number)


def end(number: signal.Signals) -> None:
    """End the process with the default action of the signal."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    os.kill(os.getpid(), number)


def stop_at_eof(stop: asyncio.Event, left: asyncio.Event) -> None:
    """Standard input has ended: the parent is gone."""
    if not os.read(sys.stdin.fileno(), 4096):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        left.set()
        stop.set()


def announce(broker: "Broker", plan: ServePlan) -> None:
    addresses = [f"{reachable(host)}:{port}" for _, host, port in broker.addresses]
    place = "in memory, nothing is kept" if plan.memory else ", ".join(str(folder) for folder in plan.folders)
    told = [f"{reachable(host)}:{port}" for host, port in plan.config.advertised.values()]
    lines = [
        f"Ottla {__version__} is ready.",
        "",
        f"  address   {', '.join(addresses)}",
        *([f"  clients   are sent to {', '.join(told)} (advertised.listeners)"] if told else ()),
        f"  data      {place}",
        f"  node      {broker.node_id} of cluster {broker.cluster_id}{name_keeper(plan.config)}",
        *([f"  metrics   {broker.metrics_url}/metrics"] if broker.metrics_url else ()),
        f"  try       ottla produce greetings hello --bootstrap {addresses[0]}",
        f"            ottla consume greetings --bootstrap {addresses[0]}",
        f"            kcat -b {addresses[0]} -L",
        "",
    ]
    print("\n".join(lines), flush=True)
    logger.info("ready", extra={"node": broker.node_id, "cluster": broker.cluster_id, "addresses": ",".join(addresses)})
    if plan.ready is not None:
        import json  # imported only when needed, like `tempfile`

        facts = {"bootstrap": addresses[0], "node_id": broker.node_id, "cluster_id": broker.cluster_id}
        facts["metrics"] = broker.metrics_url
        with open(plan.ready, "w", encoding="utf-8") as ready:
            ready.write(json.dumps(facts) + "\n")


def name_keeper(config: BrokerConfig) -> str:
    return f", in ZooKeeper at {config.zookeeper_connect}" if config.zookeeper_connect else ""


def reachable(host: str) -> str:
    """The address of a listener for a client on this machine."""
    if host in EVERYWHERE:
        return "localhost"
    return f"[{host}]" if ":" in host else host


def explain(error: OSError, config: BrokerConfig) -> str:
    if "ottla.metrics.listener" in str(error):
        return str(error.strerror)
    listeners = ",".join(config.listeners)
    if error.errno == errno.EADDRINUSE:
        return f"{listeners}: the port is in use by another program; choose another with --port"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{listeners}: this machine has no such address; choose another with --host"
    if isinstance(error, socket.gaierror):
        return f"{listeners}: {error.strerror}; choose another address with --host"
    if error.errno == errno.EACCES and error.filename is None:
        return f"{listeners}: permission denied; ports below 1024 are for root, choose another with --port"
    return str(error)


def complain(message: str, code: int) -> int:
    for line in message.splitlines() or [""]:
        print(f"ottla serve: {line}", file=sys.stderr)
    return code
