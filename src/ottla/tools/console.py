"""`ottla console`: serve the web console of a cluster in its own process."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from ottla.tools.session import BOOTSTRAP, Bootstrap, Failed, Properties, pairs, read_security

PORT = 8190


def console(
    bootstrap: Bootstrap = BOOTSTRAP,
    listen: Annotated[str, typer.Option(help="Address of the web page; port 0: any free port")] = f"127.0.0.1:{PORT}",
    token: Annotated[str | None, typer.Option(envvar="OTTLA_CONSOLE_TOKEN", help="Access token of the page")] = None,
    token_file: Annotated[Path | None, typer.Option(help="Read the token from this file")] = None,
    user: Annotated[str | None, typer.Option(help="User name instead of a token; needs --password-file")] = None,
    password_file: Annotated[Path | None, typer.Option(help="Read the password from this file")] = None,
    allow_changes: Annotated[bool, typer.Option("--allow-changes", help="Allow changes from the page")] = False,
    allow_host: Annotated[list[str] | None, typer.Option(help="Another host name of the page; repeatable")] = None,
    history: Annotated[
        Path | None, typer.Option(help="Store lag, rates and the audit log in this file (default: in your home folder)")
    ] = None,
    registry: Annotated[str | None, typer.Option(help="Schema registry, to decode Avro and Protobuf values")] = None,
    zookeeper: Annotated[str | None, typer.Option(help="Also show this ZooKeeper's tree: host:port,.../path")] = None,
    every: Annotated[float, typer.Option(min=0.5, max=300, help="Seconds between updates")] = 2.0,
    metrics: Annotated[
        list[str] | None, typer.Option(help="Metrics of a broker, http://host:port/metrics; repeatable")
    ] = None,
    until_eof: Annotated[
        bool, typer.Option("--until-eof", help="Stop when standard input closes, such as when the parent exits")
    ] = False,
    properties: Properties = [],  # noqa: B006 - Typer reads the default and hands out a new list
) -> None:
    """Serve a web page that shows a cluster, and changes it if allowed. Works with any Kafka cluster."""
    if find_spec("nicegui") is None:
        raise Failed("the console needs NiceGUI: pip install 'ottla[console]'")
    from ottla.console.console import Options
    from ottla.console.serving import serve

    host, port = split(listen)
    options = Options(
        bootstrap=bootstrap,
        security=read_security(pairs(properties)),
        host=host,
        port=port,
        token=secret(token_file) if token_file else token,
        user=user,
        password=secret(password_file) if password_file else None,
        allow_changes=allow_changes,
        hosts=tuple(allow_host or ()),
        history=str(history) if history else str(default_history()),
        registry=registry,
        zookeeper=zookeeper,
        every_s=every,
        metrics=tuple(metrics or ()),
    )
    raise typer.Exit(serve(options, until_eof=until_eof))


def split(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise typer.BadParameter(f"--listen {listen}: expected host:port")
    return host.strip("[]") or "127.0.0.1", int(port)


def secret(path: Path) -> str:
    try:
        found = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Failed(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if not found:
        raise Failed(f"{path} is empty")
    return found


def default_history() -> Path:
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "ottla" / "console.sqlite"
