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


def tools(arguments: list[str]) -> int:
    try:
        from confluent_kafka import KafkaException

        from ottla.tools.app import app
        from ottla.tools.session import Failed, explained
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
        return end.code if isinstance(end.code, int) else 0
    except Failed as error:
        return complain(str(error))
    except KafkaException as error:
        return complain(explained(error))
    except KeyboardInterrupt:
        return 130
    return 0


def complain(message: str) -> int:
    print(f"ottla: {message}", file=sys.stderr)
    return 1
