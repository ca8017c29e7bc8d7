"""Log lines of a broker process: one event a line, on stderr, as text for people or JSON for machines.

    text   2026-11-15 09:30:00.123 INFO  broker: started node=0 port=9092
    json   {"time": "2026-11-15T09:30:00.123Z", "level": "info", "source": "broker", "message": "started", "node": 0}

Facts travel as fields, never inside the sentence: `logger.info("started", extra={"node": 0, "port": 9092})`. All
loggers are children of `ottla`; a library that embeds a broker configures that one name, and nothing is printed unless
it does.
"""

import logging
import time

FORMATS = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")
STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def set_up(level: str, form: str) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logger = logging.getLogger("ottla")
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False


class TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        day = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        words = [
            f"{day}.{int(record.msecs):03} {record.levelname:<7} {source(record)}: {one_line(record.getMessage())}"
        ]
        words += [f"{name}={one_line(str(value))}" for name, value in fields(record).items()]
        line = " ".join(words)
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonLines(logging.Formatter):
    def __init__(self) -> None:
        super().__init__()
        from json import dumps  # costs milliseconds of a start that does without

        self._dumps = dumps

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        event = {
            "time": f"{moment}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "source": source(record),
            "message": record.getMessage(),
            **fields(record),
        }
        if record.exc_info:
            event["error"] = self.formatException(record.exc_info)
        return self._dumps(event, default=str)


def source(record: logging.LogRecord) -> str:
    return record.name.removeprefix("ottla.")


def fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in STANDARD}


def one_line(text: str) -> str:
    """A client chooses its client id and topic names: none of them may forge a second log line."""
    return text if text.isprintable() else text.encode("unicode_escape").decode()
