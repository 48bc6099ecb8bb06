"""The State stream that is measured: entities that change again and again. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from protocol.state import DELETE, INSERT, UPDATE, Materialised

TYPES = ("item", "order")
DELETED_EVERY = 20  # an entity's changes; the next one inserts it again
BATCH = 10_000  # messages


@dataclass(frozen=True, slots=True)
class History:
    """In each round every entity changes once; after the last one all of them are live."""

    entities: int = 1000
    rounds: int = 1000

    def __len__(self) -> int:
        return self.entities * self.rounds

    def batches(self) -> Iterator[bytes]:
        """JSON arrays, each to be appended at once."""
        for first in range(0, len(self), BATCH):
            numbers = range(first, min(first + BATCH, len(self)))
            messages = (self._message(at % self.entities, at // self.entities) for at in numbers)
            yield f"[{','.join(messages)}]".encode()

    def final_state(self) -> Materialised:
        """Made without the materialiser that it is compared with."""
        state = Materialised()
        for entity in range(self.entities):
            of_type = state.entities.setdefault(_type(entity), {})
            of_type[_key(entity)] = _value(entity, self.rounds - 1).encode()
        return state

    def _message(self, entity: int, number: int) -> str:
        operation = self._operation(entity, number)
        value = "" if operation == DELETE else f'"value":{_value(entity, number)},'
        headers = f'{{"operation":"{operation}","txid":"{number}-{entity}"}}'
        return f'{{"type":"{_type(entity)}","key":"{_key(entity)}",{value}"headers":{headers}}}'

    def _operation(self, entity: int, number: int) -> str:
        if self._is_deleted(entity, number):
            return DELETE
        return INSERT if number == 0 or self._is_deleted(entity, number - 1) else UPDATE

    def _is_deleted(self, entity: int, number: int) -> bool:
        return 0 < number < self.rounds - 1 and (entity + number) % DELETED_EVERY == 0


def _type(entity: int) -> str:
    return TYPES[entity % len(TYPES)]


def _key(entity: int) -> str:
    return f"key-{entity}"


def _value(entity: int, number: int) -> str:
    price = (entity * 7 + number) % 1000
    return f'{{"name":"number {entity}","revision":{number},"price":{price},"tags":["a","b"]}}'
