"""From the process to a command and back to an exit code; what goes wrong on the way is one line, not a traceback.

0 done, 1 the cluster or a record said no, 2 the command line made no sense. Needs the extra `tools`, and says so.
"""

import sys

LIBRARIES = {"typer", "rich", "confluent_kafka"}
WITHOUT_TOOLS = """Usage: ottla COMMAND [OPTIONS]

  serve      run a broker until it is told to stop; see `ottla serve --help`
  --version  print the version

every other command comes with: pip install 'ottla[tools]'
console comes with: pip install 'ottla[console]'
pipeline and mirror come with: pip install 'ottla[spark]'"""


USAGE = 2
# Options of Kafka's own tools, kcat and rpk.
HINTS = {
    "--from-beginning": "`ottla consume` begins at the beginning; elsewhere with --from",
    "-o": "where to begin is --from: beginning, end, an offset, -10, -5m",
    "--offset": "where to begin is --from: beginning, end, an offset, -10, -5m",
    "--bootstrap-server": "the cluster is --bootstrap, or -b",
    "--broker-list": "the cluster is --bootstrap, or -b",
    "--brokers": "the cluster is --bootstrap, or -b",
    "--topic": "the topic stands without an option: `ottla consume TOPIC`, `ottla topics describe TOPIC`",
    "-t": "the topic stands without an option: `ottla consume TOPIC`",
    "-C": "`ottla consume TOPIC`",
    "-P": "`ottla produce TOPIC`",
    "-L": "`ottla brokers` and `ottla topics list`",
    "--max-messages": "stop after so many with --max, or -n",
    "-c": "stop after so many with --max, or -n",
    "--replication-factor": "copies are --replicas, or -r",
    "--list": "`list` is a command: `ottla topics list`, `ottla groups list`",
    "--describe": "`describe` is a command: `ottla topics describe TOPIC`",
    "--create": "`create` is a command: `ottla topics create TOPIC`",
    "--delete": "`delete` is a command: `ottla topics delete TOPIC`",
    "--consumer-property": "an option of the client is --property NAME=VALUE, or -X",
    "--producer-property": "an option of the client is --property NAME=VALUE, or -X",
    "--command-config": "options of the client are --property NAME=VALUE, or -X",
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
    """After a command line that was not understood: how Ottla says what other tools say."""
    for argument in arguments:
        if hint := HINTS.get(argument.partition("=")[0]):
            print(f"ottla: {argument.partition('=')[0]}: {hint}", file=sys.stderr)


def complain(message: str) -> int:
    print(f"ottla: {message}", file=sys.stderr)
    return 1
