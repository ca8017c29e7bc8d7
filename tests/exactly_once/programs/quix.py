"""Counts words with Quix Streams, exactly once: state on disk and in a changelog topic, every count in the output.

Run by an interpreter of its own. Arguments: bootstrap, source, target, state folder.
"""

import sys

from quixstreams import Application, State


def count(word: str, state: State) -> str:
    total = int(state.get(word, 0)) + 1
    state.set(word, total)
    return str(total)


def main(bootstrap: str, source: str, target: str, folder: str) -> None:
    settings = {"session.timeout.ms": 3000, "heartbeat.interval.ms": 300}
    application = Application(
        bootstrap,
        consumer_group="word-count",
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        commit_interval=0.2,
        state_dir=folder,
        consumer_extra_config=settings,
        loglevel="WARNING",
    )
    lines = application.topic(source, value_deserializer="str", key_deserializer="str")
    counts = application.topic(target, value_serializer="str", key_serializer="str")
    words = application.dataframe(lines).apply(str.split, expand=True)
    words = words.group_by(lambda word: word, name="word", value_deserializer="str", value_serializer="str",
                           key_deserializer="str", key_serializer="str")  # fmt: skip
    words.apply(count, stateful=True).to_topic(counts)
    application.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
