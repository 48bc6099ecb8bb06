"""What became of the messages that writers sent. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from math import inf

from loadtest.verify.messages import PLAIN_WRITER, generation_of
from loadtest.verify.timeline import Life, Timeline, Violation, seen_by


def lost_acknowledgements(line: Timeline) -> Iterator[Violation]:
    for life in line.audited:
        for sent in life.sent.values():
            if sent.acknowledged < inf and sent.id not in life.places:
                text = f"{sent.id} was acknowledged and is not in the stream"
                yield Violation("lost-acknowledgement", life.stream, sent.acknowledged, text)


def written_twice(line: Timeline) -> Iterator[Violation]:
    for life in line.audited:
        for id_, count in Counter(life.ids).items():
            if count > 1:
                text = f"{id_} is there {count} times"
                yield Violation("written-twice", life.stream, _sent_at(life, id_), text)


def never_sent(line: Timeline) -> Iterator[Violation]:
    for life in line.audited:
        for id_ in life.ids:
            sent = life.sent.get(id_)
            if sent is None:
                text = f"{id_} is in incarnation {life.generation}, where nobody sent it"
                yield Violation("never-sent", life.stream, life.created, text)
            elif not sent.may_be_there:
                text = f"{id_} was refused each time and is there"
                yield Violation("refused-but-written", life.stream, sent.began, text)


def out_of_order(line: Timeline) -> Iterator[Violation]:
    """Of one producer: by number. Of all: who was acknowledged before another began is first."""
    for life in line.audited:
        expected: dict[str, int] = defaultdict(int)
        latest = -inf
        for id_ in dict.fromkeys(life.ids):
            _, producer, number = id_.split(".")
            if int(number) != expected[producer] and not producer.startswith(PLAIN_WRITER):
                text = f"{id_} stands where number {expected[producer]} of {producer} belongs"
                yield Violation("out-of-order", life.stream, _sent_at(life, id_), text)
            expected[producer] = int(number) + 1
            sent = life.sent.get(id_)
            if sent is None:
                continue
            if sent.acknowledged < latest:
                text = f"{id_} was acknowledged before something began that stands before it"
                yield Violation("out-of-order", life.stream, sent.acknowledged, text)
            latest = max(latest, sent.began)


def wrong_offsets(line: Timeline) -> Iterator[Violation]:
    """What a writer was told is the end of his message is the end of it for all."""
    for life in line.audited:
        for sent in life.sent.values():
            place = life.places.get(sent.id)
            for offset in filter(None, sent.offsets):  # a fault on the way may have taken it
                if place is not None and life.offsets.get(offset) != place + 1:
                    text = f"{sent.id} is number {place}, but its offset {offset} is elsewhere"
                    yield Violation("wrong-offset", life.stream, sent.acknowledged, text)


def lost_producers(line: Timeline) -> Iterator[Violation]:
    """A producer goes on after an acknowledgement: a gap means that the server forgot it."""
    for append in line.appends:
        life = line.certain_life(append.stream, append.began, append.ended)
        if append.code == "sequence-gap" and life is not None:
            if life.generation == generation_of(append.id):
                text = f"{append.id} is a gap for the server: what came before it is forgotten"
                yield seen_by("lost-acknowledgement", append, text)


def torn_streams(line: Timeline) -> Iterator[Violation]:
    for life in line.audited:
        for damage in life.damage:
            yield Violation("torn", life.stream, life.created, f"at the origin: {damage}")


def _sent_at(life: Life, id_: str) -> float:
    sent = life.sent.get(id_)
    return life.created if sent is None else sent.began
