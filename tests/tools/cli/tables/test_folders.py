"""Settings of Spark as options of commands."""

import pytest
import typer

from tools.cli.tables.folders import parse_settings


def test_setting_is_a_key_of_spark_and_a_value() -> None:
    assert parse_settings(["spark.executor.memory=2g", "spark.a=b=c"]) == {
        "spark.executor.memory": "2g",
        "spark.a": "b=c",
    }
    for text in ("spark.a", "memory=2g"):
        with pytest.raises(typer.BadParameter, match="expected a setting of Spark"):
            parse_settings([text])
