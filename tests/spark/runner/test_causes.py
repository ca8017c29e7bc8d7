"""One sentence from Spark's error messages; the texts are Spark's own, shortened."""

from __future__ import annotations

import pytest

from ottla.spark.runner.causes import LENGTH_MAX, sentence

IN_A_TASK = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "visits.py", line 22, in bad
    def bad(x): raise Failed("record 7 of visits-0 is no JSON: skip it by --option broken=skip")
                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
ottla.client.failure.Failed: record 7 of visits-0 is no JSON: skip it by --option broken=skip
 SQLSTATE: 38000
=== Streaming Query ===
Identifier: [id = 3305f441-9da5-48f7-b8b4-242bb80408ef, runId = 1d2d18a6-b6e6-4225-897a-a89c0c484e21]
Current State: ACTIVE
"""
IN_THE_PLANNER = """[STREAM_FAILED] Query [id = 165c, runId = 9d5f] terminated with exception: \
[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform initialOffset: \
Traceback (most recent call last):
  File "python_streaming_source_runner.py", line 267, in main
  File "stream.py", line 78, in initialOffset
    return self.planner.initial().dump()
           ^^^^^^^^^^^^^^^^^^^^^^
ottla.client.failure.Failed: topic nope does not exist at localhost:19555: create it, or correct the name
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
"""
WITH_A_CAUSE = """Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "a.py", line 3, in read
KeyError: 'offset'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "b.py", line 4, in read
ottla.client.failure.Refused: reading visits-0: the offset is gone (OFFSET_OUT_OF_RANGE)

	at org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
	at java.base/java.lang.Thread.run(Thread.java:840)
"""
OF_A_USER = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "visits.py", line 3, in key
KeyError: 'user'
 SQLSTATE: 38000
"""
OF_SPARK = """[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with name `nope` cannot be \
resolved. Did you mean one of the following? [`id`]. SQLSTATE: 42703;
'Project ['nope]
+- Range (0, 3, step=1, splits=Some(2))
"""
IN_A_BATCH = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "utils.py", line 163, in call
    self.func(DataFrame(jdf, wrapped_session_jdf), batch_id)
pyspark.errors.exceptions.captured.AnalysisException: [PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03
"""
OF_JAVA = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: \
java.io.IOException: No space left on device SQLSTATE: XXKST
=== Streaming Query ===
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (IN_A_TASK, "record 7 of visits-0 is no JSON: skip it by --option broken=skip"),
        (IN_THE_PLANNER, "topic nope does not exist at localhost:19555: create it, or correct the name"),
        (WITH_A_CAUSE, "reading visits-0: the offset is gone (OFFSET_OUT_OF_RANGE)"),
        (OF_A_USER, "'user' (KeyError)"),
        (
            OF_SPARK,
            "A column, variable, or function parameter with name `nope` cannot be resolved. Did you mean one of the "
            "following? [`id`]. (UNRESOLVED_COLUMN.WITH_SUGGESTION)",
        ),
        (IN_A_BATCH, "Path does not exist: file:/x. (PATH_NOT_FOUND)"),
        (OF_JAVA, "No space left on device"),
        ("just words\nand more", "just words"),
        ("", "ValueError"),
    ],
)
def test_a_sentence(text: str, expected: str) -> None:
    assert sentence(ValueError(text)) == expected


def test_the_cause_of_an_exception_counts() -> None:
    error = ValueError("the query failed")
    error.__cause__ = ValueError(IN_A_TASK)
    assert sentence(error).startswith("record 7")


def test_a_sentence_is_not_a_page() -> None:
    assert len(sentence(ValueError("x" * 10_000))) == LENGTH_MAX + 3
