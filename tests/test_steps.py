"""A step may raise anything: the error is logged once, again when it changes, and so is the recovery."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging

import pytest
from waiting import until

from ottla.errors import BrokerError, ErrorCode
from ottla.steps import Steps


class Subject:
    def __str__(self) -> str:
        return "orders-0"


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    found = [(record.getMessage(), getattr(record, "reason", "")) for record in caplog.records]
    caplog.clear()
    return found


@pytest.fixture
def caplog(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "ottla")
    return caplog


def attempt(steps: Steps, error: Exception | None, subject: object | None = None) -> bool:
    with steps.attempt("retention", subject) as attempt:
        if error is not None:
            raise error
    return attempt.failed


def test_a_trouble_is_said_once_until_it_changes_and_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    steps = Steps("ottla.test")
    for _ in range(3):
        assert attempt(steps, OSError(errno.EMFILE, "Too many open files"))
    assert lines(caplog) == [("retention failed, will be tried again", "[Errno 24] Too many open files")]
    for _ in range(2):
        attempt(steps, MemoryError())
    assert lines(caplog) == [("retention failed, will be tried again", "MemoryError")]
    for _ in range(2):
        assert not attempt(steps, None)
    assert lines(caplog) == [("retention works again", "")]
    attempt(steps, MemoryError())
    assert lines(caplog) == [("retention failed, will be tried again", "MemoryError")]


def test_the_trouble_of_one_is_not_that_of_another_nor_of_its_successor(caplog: pytest.LogCaptureFixture) -> None:
    steps = Steps("ottla.test")
    one, other = Subject(), Subject()
    attempt(steps, MemoryError(), one)
    attempt(steps, None, other)
    attempt(steps, MemoryError(), one)
    assert len(lines(caplog)) == 1
    del one
    gc.collect()
    attempt(steps, MemoryError(), Subject())
    assert len(lines(caplog)) == 1


def test_each_goes_on_with_the_next(caplog: pytest.LogCaptureFixture) -> None:
    steps, done = Steps("ottla.test"), []
    subjects = [Subject() for _ in range(3)]

    def work(subject: Subject) -> None:
        if subject is subjects[0]:
            raise RuntimeError("unforeseen")
        done.append(subject)

    for _ in range(2):
        steps.each("survey", subjects, work)
    assert done == subjects[1:] * 2
    (record,) = caplog.records
    assert record.exc_info, "of what nobody foresaw the log shows where it came from"
    steps.each("survey", subjects, done.append)
    assert lines(caplog)[1:] == [("survey works again", "")]


def test_what_a_directory_has_said_is_not_said_again(caplog: pytest.LogCaptureFixture) -> None:
    steps = Steps("ottla.test")
    refusal = BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "full")
    refusal.__cause__ = OSError(errno.ENOSPC, "full")
    assert attempt(steps, refusal)
    assert lines(caplog) == []
    attempt(steps, BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "offline"))
    assert lines(caplog) == [("retention failed, will be tried again", "offline")]


def test_every_goes_on_until_it_is_cancelled() -> None:
    turns: list[int] = []

    async def work() -> None:
        turns.append(len(turns))
        raise [OSError(errno.EIO, "broken"), MemoryError(), KeyError("bug"), TimeoutError()][len(turns) % 4]

    async def story() -> None:
        task = asyncio.create_task(Steps("ottla.test").every(0, "work", work))
        await until(lambda: len(turns) >= 9)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(story())
