"""The columns of Spark are the fields of a log line."""

import msgspec
import pytest
from pyspark.sql.types import DoubleType, LongType, StringType

from protocol.accesslog import AccessRecord
from spark.schema import FIELDS, LINE, REQUESTS

TYPES = {int: LongType(), float: DoubleType(), str: StringType()}


def test_every_field_of_a_line_is_a_column_of_its_type_in_the_same_order() -> None:
    fields = msgspec.structs.fields(AccessRecord)
    assert [(column.name, column.dataType) for column in LINE] == [
        (field.name, TYPES[field.type]) for field in fields
    ]


@pytest.mark.parametrize("field", msgspec.structs.fields(AccessRecord), ids=lambda f: f.name)
def test_a_field_that_may_be_missing_has_the_same_default(
    field: msgspec.structs.FieldInfo,
) -> None:
    found = next(each for each in FIELDS if each.name == field.name)
    assert found.default == (None if field.required else field.default)


def test_requests_have_all_columns_of_lines() -> None:
    assert REQUESTS.fieldNames()[: len(LINE)] == LINE.fieldNames()
