"""Run the command line and return an exit code. Errors are printed as one line, not as a traceback.

Exit codes: 0 success, 1 the command failed, 2 invalid command line. Without the extra `tools`, says how to install it.
"""

import sys

LIBRARIES = {"typer", "rich", "confluent_kafka"}
WITHOUT_TOOLS = """Usage: ottla COMMAND [OPTIONS]

  serve      run a broker; see `ottla serve --help`
  --version  print the version

all other commands need: pip install 'ottla[tools]'
console needs: pip install 'ottla[console]'
pipeline and mirror need: pip install 'ottla[spark]'"""


USAGE = 2
# Options of Kafka's own tools, kcat and rpk.
HINTS = {
    "--from-beginning": "`ottla consume` starts at the beginning; use --from to start elsewhere",
    "-o": "use --from: beginning, end, an offset, -10, -5m",
    "--offset": "use --from: beginning, end, an offset, -10, -5m",
    "--bootstrap-server": "use --bootstrap, or -b",
    "--broker-list": "use --bootstrap, or -b",
    "--brokers": "use --bootstrap, or -b",
    "--topic": "the topic is an argument: `ottla consume TOPIC`, `ottla topics describe TOPIC`",
    "-t": "the topic is an argument: `ottla consume TOPIC`",
    "-C": "use `ottla consume TOPIC`",
    "-P": "use `ottla produce TOPIC`",
    "-L": "use `ottla brokers` and `ottla topics list`",
    "--max-messages": "use --max, or -n",
    "-c": "use --max, or -n",
    "--replication-factor": "use --replicas, or -r",
    "--list": "`list` is a command: `ottla topics list`, `ottla groups list`",
    "--describe": "`describe` is a command: `ottla topics describe TOPIC`",
    "--create": "`create` is a command: `ottla topics create TOPIC`",
    "--delete": "`delete` is a command: `ottla topics delete TOPIC`",
    "--consumer-property": "use --property NAME=VALUE, or -X",
    "--producer-property": "use --property NAME=VALUE, or -X",
    "--command-config": "use --property NAME=VALUE, or -X",
}


def tools(arguments: list[str]) -> int:
    try:
        from confluent_kafka import KafkaException

        from ottla.tools.app import app
        from ottla.tools.session import Failed, explain
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in LIBRARIES:
            raise
        if not arguments or arguments[0] in ("--help", "-h"):
            print(WITHOUT_TOOLS)
            return 0
        return complain(f"this command needs {error.name}: pip install 'ottla[tools]'")
    try:
        app(args=arguments, prog_name="ottla")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
        if code == USAGE:
            give_hints(arguments)
        return code
    except Failed as error:
        return complain(str(error))
    except KafkaException as error:
        return complain(explain(error))
    except KeyboardInterrupt:
        return 130
    return 0


def give_hints(arguments: list[str]) -> None:
    """After an invalid command line, name Ottla's equivalents of other tools' options."""
    for argument in arguments:
        if hint := HINTS.get(argument.partition("=")[0]):
            print(f"ottla: {argument.partition('=')[0]}: {hint}", file=sys.stderr)


def complain(message: str) -> int:
    print(f"ottla: {message}", file=sys.stderr)
    return 1
