"""Generated articles, some of them repeated or rewritten, and generated readers with interests; determined by the
seed."""

import json
from collections import deque
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import count
from random import Random
from typing import Any, Final

from ottla.spark.runner.generating import Record

SUBJECTS: Final = {
    "sport": "football match goal league coach player season stadium referee penalty striker champion",
    "music": "opera concert orchestra singer album guitar festival melody audience composer violin stage",
    "space": "rocket orbit satellite telescope planet launch astronaut galaxy mission crater lander comet",
    "food": "recipe garlic butter oven flavour chef restaurant dough basil kitchen roasted pepper",
    "money": "market shares inflation interest bank investor profit merger currency dividend budget deficit",
    "health": "vaccine hospital patient doctor therapy virus clinic symptom surgery nurse diet sleep",
}
COMMON: Final = (
    "today people said after that with from their city during this week about many other over when which while "
    "report early according however another months later local national little should between without every"
)


def people(topic: str, seed: int, number: int) -> Iterator[Record]:
    random = Random(f"people {seed}")
    for person in range(number):
        liked = random.sample(list(SUBJECTS), 2)
        words = [word for subject in liked for word in random.sample(SUBJECTS[subject].split(), 3)]
        value = {"interests": {word: round(random.uniform(0.2, 1.0), 2) for word in words}}
        yield Record(topic, f"user-{person + 1}", json.dumps(value))


def records(topic: str, seed: int, start: datetime, step_s: float = 1.0) -> Iterator[Record]:
    """Endless: new stories, and sometimes an earlier one, unchanged or slightly rewritten by another feed."""
    random = Random(seed)
    told: deque[dict[str, Any]] = deque(maxlen=200)
    for number in count():
        luck = random.random()
        if luck < 0.1 and told:
            article = random.choice(told)
        elif luck < 0.25 and told:
            article = rewritten(random, random.choice(told), number)
        else:
            article = story(random, number)
            told.append(article)
        at = start + timedelta(seconds=number * step_s)
        item = {**article, "html": add_markup(random, article["words"]), "published": at.isoformat()}
        del item["words"]
        yield Record(topic, item["id"], json.dumps(item))


def story(random: Random, number: int) -> dict[str, Any]:
    subject = random.choice(list(SUBJECTS))
    own, common = SUBJECTS[subject].split(), COMMON.split()
    words = [random.choice(own if random.random() < 0.3 else common) for _ in range(random.randint(60, 150))]
    title = " ".join(random.sample(own, 4)).capitalize()
    return {"id": f"story-{number}", "feed": f"feed-{random.randint(1, 5)}", "title": title, "words": words}


def rewritten(random: Random, article: dict[str, Any], number: int) -> dict[str, Any]:
    """Replace two or three words."""
    words = list(article["words"])
    for _ in range(random.randint(2, 3)):
        words[random.randrange(len(words))] = random.choice(COMMON.split())
    return {**article, "id": f"again-{number}", "feed": f"feed-{random.randint(6, 9)}", "words": words}


def add_markup(random: Random, words: list[str]) -> str:
    """A text as in web pages: paragraphs, links, entities, scripts, uneven white space."""
    parts, paragraph = ["<script>var seen = 1 < 2;</script>"], []
    for word in words:
        luck = random.random()
        word = f"<a href='/x?a=1&amp;b=2'>{word}</a>" if luck < 0.05 else f"<b>{word}</b>" if luck < 0.1 else word
        paragraph.append(word + ("&nbsp;" if luck > 0.95 else "\n  " if luck > 0.9 else " "))
        if luck < 0.03:
            parts.append(f"<p>{''.join(paragraph)}</p>")
            paragraph = []
    return "".join([*parts, f"<p>{''.join(paragraph)}</p>"])
