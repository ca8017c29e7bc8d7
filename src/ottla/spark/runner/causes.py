"""Why a query failed, in one sentence instead of a Java stack trace with a Python one inside.

Spark wraps an exception of a Python worker into text, again at every level. The innermost is the cause: the line after
the frames of a Python traceback. Spark's own errors have a name in brackets and a message; the frames after it do not
help a user. The full trace stays in spark.log.
"""

import re
from typing import Final

RAISED: Final = re.compile(r"^(?:\w+\.)*(\w+): (.+)$")
FRAME: Final = re.compile(r"^\s+(at |File |~|\^|\.\.\. \d+ more)|^\s*$|^=== ")
TAIL: Final = re.compile(r"\s*\bSQLSTATE: \w{5}.*")  # Spark's code for the kind of error, and whatever follows it
NAMED: Final = re.compile(r"\[([A-Z][A-Z0-9_.]+)\] ([^\n]+)")
JAVA_NAME: Final = re.compile(r"(?:\b[a-z_]+\.)+([A-Z]\w+)(?:Exception|Error)?: ")
OURS: Final = {"Failed", "Refused", "Unreachable", "OutOfRange", "UsageError", "InUse", "FolderInUse"}
LENGTH_MAX: Final = 600
TOO_BUSY: Final = "Python worker failed to connect back"


def sentence(error: BaseException) -> str:
    text = full_text(error)
    if TOO_BUSY in text:  # Spark waits ten seconds, and has no option for it
        return "no Python process started within ten seconds: the machine is too busy; run it again, and it continues"
    inner = python_cause(text)
    if inner is not None:
        return inner
    lines = text.strip().splitlines()
    first = lines[0].strip() if lines else type(error).__name__
    return shorten(spark_cause(text) or first)


def full_text(error: BaseException) -> str:
    """The text of an exception and of its causes, including the Java side of one that came through py4j."""
    parts = [str(error)]
    java = getattr(error, "java_exception", None)
    if java is not None:
        parts.append(str(java.toString()))
    if error.__cause__ is not None:
        parts.append(full_text(error.__cause__))
    return "\n".join(parts)


def python_cause(text: str) -> str | None:
    """The last line of the innermost Python traceback. The messages of Ottla's own exceptions are already sentences."""
    best = None
    _, *tracebacks = text.split("Traceback (most recent call last):")
    for traceback in tracebacks:
        raised = after_frames(traceback.splitlines())
        if raised is None:
            continue
        kind, message = raised
        if kind in OURS:
            return message
        best = best or spark_cause(message) or f"{message} ({kind})"
    return shorten(best) if best else None


def after_frames(lines: list[str]) -> tuple[str, str] | None:
    """`package.Kind: message` after the frames of a traceback, including further lines of the message."""
    for index, line in enumerate(lines):
        if line.startswith((" ", "\t")) or not line.strip():
            continue
        found = RAISED.match(line.strip())
        if not found:
            continue
        message = [found[2]]
        for more in lines[index + 1 :]:
            if FRAME.match(more) or RAISED.match(more):
                break
            message.append(more.strip())
        return found[1], TAIL.sub("", " ".join(message))
    return None


def spark_cause(text: str) -> str | None:
    """`[NAME_OF_ERROR] message` of the innermost error that has one. STREAM_FAILED only says that there is a cause."""
    found = [(kind, TAIL.sub("", message).strip()) for kind, message in NAMED.findall(text)]
    named = [(kind, message) for kind, message in found if kind != "STREAM_FAILED"]
    if named:
        kind, message = named[-1]
        return f"{message} ({kind})"
    if found:
        _, _, message = found[-1][1].partition("terminated with exception: ")
        return JAVA_NAME.sub("", message).strip() or None
    return None


def shorten(text: str) -> str:
    return text if len(text) <= LENGTH_MAX else f"{text[:LENGTH_MAX]}..."
