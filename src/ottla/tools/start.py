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


# Options of Kafka's own tools, kcat and rpk. {command} is the command that refused the option.
HINTS = {
    "--from-beginning": "`ottla consume` starts at the beginning; use --from to start elsewhere",
    "-o": "use --from: beginning, end, an offset, -10, -5m",
    "--offset": "use --from: beginning, end, an offset, -10, -5m",
    "--bootstrap-server": "use --bootstrap, or -b",
    "--broker-list": "use --bootstrap, or -b",
    "--brokers": "use --bootstrap, or -b",
    "--topic": "the topic is an argument: `{command} TOPIC`",
    "-t": "the topic is an argument: `{command} TOPIC`",
    "--group": "the group is an argument: `{command} GROUP`",
    "-g": "the group is an argument: `{command} GROUP`",
    "--all-groups": "use --all, or -a",
    "-C": "use `ottla consume TOPIC`",
    "-P": "use `ottla produce TOPIC`",
    "-L": "use `ottla brokers` and `ottla topics list`",
    "--max-messages": "use --max, or -n",
    "--replication-factor": "use --replicas, or -r",
    "--list": "it is a command: `{command} list`",
    "--describe": "it is a command: `{command} describe`",
    "--create": "it is a command: `{command} create`",
    "--delete": "it is a command: `{command} delete`",
    "--alter": "use `ottla topics alter`, `ottla configs set` or `ottla quotas set`",
    "--reset-offsets": "it is a command: `ottla groups reset GROUP`",
    "--add-config": "give NAME=VALUE as an argument: `ottla configs set --topic TOPIC NAME=VALUE`",
    "--delete-config": "`ottla configs delete --topic TOPIC NAME`",
    "--entity-type": "use --topic, --broker, --user, --client or --ip instead of --entity-type and --entity-name",
    "--consumer-property": "use --property NAME=VALUE, or -X",
    "--producer-property": "use --property NAME=VALUE, or -X",
    "--command-config": "use --property NAME=VALUE, or -X",
}
# Where an option of the same name means something else.
OWN_HINTS = {
    ("ottla consume", "-c"): "use --max, or -n",
    ("ottla topics create", "-c"): "use --config",
    ("ottla topics create", "--set"): "use --config",
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
        give_hint(end.__context__)
        return code
    except Failed as error:
        return complain(str(error))
    except KafkaException as error:
        return complain(explain(error))
    except KeyboardInterrupt:
        return 130
    return 0


def give_hint(reason: BaseException | None) -> None:
    """For an option that a command does not have, but other tools do: name Ottla's equivalent."""
    option, context = getattr(reason, "option_name", None), getattr(reason, "ctx", None)
    if option is None or context is None:
        return
    command = context.command_path
    if hint := OWN_HINTS.get((command, option)) or HINTS.get(option):
        print(f"ottla: {option}: {hint.format(command=command)}", file=sys.stderr)


def complain(message: str) -> int:
    print(f"ottla: {message}", file=sys.stderr)
    return 1
