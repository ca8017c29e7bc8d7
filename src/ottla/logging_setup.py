"""Log lines of a broker process: one event a line, on stderr, as text for people or JSON for machines.

    text   2026-11-15 09:30:00.123 INFO  broker: started node=0 port=9092
    json   {"time": "2026-11-15T09:30:00.123Z", "level": "info", "source": "broker", "message": "started", "node": 0}

Facts are fields, never part of the sentence: `logger.info("started", extra={"node": 0, "port": 9092})`. Clients cause
many lines, some on purpose: of one kind at most `LINES_PER_S` are logged, and the next line says how many were left out
(`unlogged=812`). All loggers are children of `ottla`; a program that embeds a broker configures that one name, and
nothing is printed unless it does.
"""

import logging
import time

FORMATS = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")
LINES_PER_S = 20  # with the same text, before its arguments are filled in
KINDS_MAX = 1000
STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def set_up(level: str, form: str) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    handler.addFilter(FloodGuard())
    logger = logging.getLogger("ottla")
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False
    # Not shown in any line, and half the cost of one: the place in the source, the thread and the process.
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


class FloodGuard(logging.Filter):
    """Limits the rate of lines of one kind: they would fill the disk and keep the broker busy."""

    def __init__(self) -> None:
        super().__init__()
        self._kinds: dict[str, tuple[float, int]] = {}  # start of the count, and number of lines

    def filter(self, record: logging.LogRecord) -> bool:
        now, kind = time.monotonic(), str(record.msg)
        since, count = self._kinds.get(kind, (now, 0))
        if now - since >= 1.0:
            if count > LINES_PER_S:
                record.unlogged = count - LINES_PER_S
            since, count = now, 0
        if len(self._kinds) >= KINDS_MAX and kind not in self._kinds:
            self._kinds.clear()
        self._kinds[kind] = since, count + 1
        return count < LINES_PER_S


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
        from json import dumps  # its import costs milliseconds, and text output does not need it

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
    """Escape control characters: clients choose their client ids and topic names, and must not forge a second log
    line."""
    return text if text.isprintable() else text.encode("unicode_escape").decode()
