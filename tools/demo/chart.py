"""A small chart of one metric: a picture for a file, and text for the terminal."""

from pathlib import Path
from typing import NamedTuple

import plotext
from matplotlib.figure import Figure
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

WIDTH_COLUMNS, HEIGHT_LINES = 78, 14


class Series(NamedTuple):
    """One metric of one origin: values over the seconds since its first reading."""

    title: str
    unit: str
    seconds: list[float]
    values: list[float]


def read_series(spark: SparkSession, origin: str, metric: str) -> Series:
    """Reads a metric from the table ``readings``, by the device's own time."""
    readings = spark.table("readings").where(
        (F.col("origin") == origin) & (F.col("metric") == metric) & F.col("time").isNotNull()
    )
    at = (F.unix_micros("time") / 1e6).alias("at")
    rows = readings.select(at, "value", "unit").orderBy("at").collect()
    seconds = [row["at"] - rows[0]["at"] for row in rows]
    return Series(f"{metric} of {origin}", rows[0]["unit"] if rows else "", seconds, [row["value"] for row in rows])


def draw_text(series: Series) -> str:
    """Returns the chart as lines of characters."""
    figure = plotext.figure
    figure.clear()
    figure.plot_size(WIDTH_COLUMNS, HEIGHT_LINES)
    figure.title(f"{series.title} [{series.unit}]")
    figure.label("seconds", "x")
    figure.draw(figure.signal(series.seconds, series.values, marker="braille").lines())
    text: str = plotext.uncolorize(figure.build().string())
    return text


def draw_png(series: Series, path: Path) -> None:
    """Writes the chart as a PNG file."""
    figure = Figure(figsize=(8, 3.2), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    axes.plot(series.seconds, series.values, linewidth=1.2)
    axes.set(title=series.title, xlabel="seconds since the first reading", ylabel=series.unit)
    axes.grid(alpha=0.3)
    figure.savefig(path)
