"""Columns of access log lines in Spark, from `AccessRecord`: types, defaults, required fields.

The range of numbers is defined here too: a sum over two million lines never overflows, whatever
they contain.
"""

from dataclasses import dataclass

import msgspec
from pyspark.sql import types as T

from protocol.accesslog import AccessRecord

_TYPES: dict[type, T.DataType] = {int: T.LongType(), float: T.DoubleType(), str: T.StringType()}

MOST_COUNT = 2**42  # of an integer field; a time needs nearly as much
MOST_MS = 2.0**32  # of a duration, which is summed in microseconds


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    type: T.DataType
    default: int | float | str | None  # None: required

    @property
    def is_text(self) -> bool:
        return isinstance(self.type, T.StringType)

    @property
    def most(self) -> int | float:
        return MOST_MS if isinstance(self.type, T.DoubleType) else MOST_COUNT


def _field(info: msgspec.structs.FieldInfo) -> Field:
    default = None if info.default is msgspec.NODEFAULT else info.default
    return Field(info.name, _TYPES[info.type], default)


FIELDS = tuple(map(_field, msgspec.structs.fields(AccessRecord)))
NUMBERS = tuple(field for field in FIELDS if not field.is_text)

# A line; any field may be missing.
LINE = T.StructType([T.StructField(field.name, field.type) for field in FIELDS])

# A cleaned request. `line_id` identifies the line and all its copies.
REQUESTS = T.StructType(
    [
        *LINE.fields,
        T.StructField("time", T.TimestampType()),
        T.StructField("line_id", T.StringType()),
        T.StructField("file", T.StringType()),
        T.StructField("position", T.LongType()),
        T.StructField("date", T.DateType()),
    ]
)
