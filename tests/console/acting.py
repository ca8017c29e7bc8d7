"""What a visitor does on the pages, and what another client sees of it: the same for Ottla and Apache Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import Consumer, TopicPartition
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping

    from console.desk import Visitor


def create_topic(visitor: Visitor, name: str, partitions: int) -> None:
    """From the page of all topics."""
    visitor.press("create")
    visitor.write("topic-name", name)
    visitor.write("topic-partitions", str(partitions))
    visitor.press("topic-create")


def delete_topic(visitor: Visitor, name: str) -> None:
    """From its own page."""
    visitor.press("delete")
    visitor.write("confirm", name)
    visitor.press("sure")


def set_option(visitor: Visitor, name: str, value: str) -> None:
    """In the table of options of a topic or a broker."""
    visitor.write("options-search", name)
    visitor.find("options").get_by_text(name, exact=True).click()
    visitor.write("option-value", value)
    visitor.press("option-save")
    visitor.sees(value, "options")


def open_group(visitor: Visitor, name: str) -> None:
    """The page of a group, as soon as the console knows it."""

    def opened() -> bool:
        visitor.go(f"/groups/{name}")
        return visitor.find("reset").is_visible() or bool(visitor.page.wait_for_timeout(500))

    wait_until(opened, f"no group {name}")


def reset_offsets(visitor: Visitor, group: str, way: str, amount: str = "", *, preview: str) -> None:
    visitor.press("reset")
    visitor.choose("reset-way", way)
    if amount:
        visitor.write("reset-amount", amount)
    visitor.press("reset-look")
    visitor.sees(preview, "reset-preview")
    visitor.press("reset-do")
    visitor.sees(f"Offsets of {group} are reset")


def propose(visitor: Visitor, way: str, topics: str, *, copies: int = 0, leaving: int = 0) -> None:
    visitor.choose("plan-way", way)
    visitor.write("plan-topics", topics)
    if copies:
        visitor.write("plan-copies", str(copies))
    if leaving:
        visitor.choose("plan-leaving", f"broker {leaving}")
        visitor.page.keyboard.press("Escape")
    visitor.press("plan-propose")


def run_plan(visitor: Visitor, throttle: str) -> None:
    visitor.write("plan-throttle", throttle)
    visitor.press("plan-run")
    visitor.press("sure")
    visitor.sees("The moves have started")


def log_in(visitor: Visitor, user: str, secret: str) -> None:
    if user:
        visitor.page.fill("input[name=user]", user)
    visitor.page.fill("input[name=secret]", secret)
    visitor.page.get_by_role("button", name="Log in").click()


def commit(bootstrap: str, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    """By another client."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(topic, *one) for one in offsets.items()], asynchronous=False)
    consumer.close()


def committed(bootstrap: str, group: str, topic: str, partitions: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    found = consumer.committed([TopicPartition(topic, index) for index in range(partitions)], timeout=60)
    consumer.close()
    return [one.offset for one in found]
