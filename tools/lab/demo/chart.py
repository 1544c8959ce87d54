"""The demo's chart: readings made, forwarded and landed over time, and the outages."""

from pathlib import Path

import plotext
from matplotlib.figure import Figure

from tools.lab.demo.timeline import Timeline

WIDTH_COLUMNS, HEIGHT_LINES = 78, 14
SERIES = {"made": "made by the devices", "forwarded": "forwarded to the central broker", "landed": "landed in files"}
STYLES = {"made": (":", 2.4), "forwarded": ("--", 1.6), "landed": ("-", 1.6)}
SHADES = ("tab:red", "tab:purple", "tab:orange", "tab:brown")
SHORTEST_SHADE_S = 0.4  # a shorter outage would be invisible


def draw_text(timeline: Timeline) -> str:
    """Returns the chart as lines of characters: made and landed, and a line for each outage."""
    seconds = [sample.at_s for sample in timeline.samples]
    figure = plotext.figure
    figure.clear()
    figure.plot_size(WIDTH_COLUMNS, HEIGHT_LINES)
    figure.title("readings made (dots) and landed (line)")
    figure.label("seconds", "x")
    made = [sample.made for sample in timeline.samples]
    figure.draw(figure.signal(seconds, made, marker="·"))
    landed = [sample.landed for sample in timeline.samples]
    figure.draw(figure.signal(seconds, landed, marker="braille").lines())
    text: str = plotext.uncolorize(figure.build().string())
    spans = (f"  {one.from_s:5.1f} s to {one.until_s:5.1f} s: {one.name}" for one in timeline.outages)
    return "\n".join([text, *spans])


def draw_png(timeline: Timeline, path: Path) -> None:
    """Writes the chart as a PNG file, outages shaded."""
    figure = Figure(figsize=(9, 4.2), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    for outage, shade in zip(timeline.outages, SHADES, strict=False):
        until_s = max(outage.until_s, outage.from_s + SHORTEST_SHADE_S)
        axes.axvspan(outage.from_s, until_s, color=shade, alpha=0.18, label=outage.name)
    seconds = [sample.at_s for sample in timeline.samples]
    for name, label in SERIES.items():
        style, width = STYLES[name]
        counts = [getattr(sample, name) for sample in timeline.samples]
        axes.plot(seconds, counts, linestyle=style, linewidth=width, label=label)
    axes.set(title="Readings on their way", xlabel="seconds", ylabel="readings")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left", fontsize="small")
    figure.savefig(path)
