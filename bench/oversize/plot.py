#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the slowdown of programs that are larger than the GPU against their size, from the rows that `measure` writes.
With several files, a later row replaces an earlier row of the same program, way and ratio."""
import argparse
import json
import math
import pathlib
import sys

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from cases import CASES, WAYS  # noqa: E402
from comparison.svg import text  # noqa: E402

# Published slowdowns relative to a GPU with enough memory, from other machines and programs: the system, the least and
# the greatest slowdown, and the publication's figure.
PUBLISHED = (("MegaTrain", 1 / 0.93, 1 / 0.93, "93% of the speed"), ("Sentinel", 1.0, 1.08, "within 8%"),
             ("SwapAdvisor", 1 / 0.99, 1 / 0.53, "53 to 99% of the speed"),
             ("unified memory", 1.0, 78.0, "up to 78 times slower"))
WRONG, MUTED = "#c02020", "#808080"
COLOURS = ("#1f5fa8", "#e0a030", "#2f8f5f", "#8050a0", "#40a8c0", "#a05030", "#505050", "#d070a0")
SHAPES = {"fsdp": "F", "save-on-cpu": "S", "streamed": "H", "streamed-cpu": "C"}
WIDTH, LEFT, ROOM, HEIGHT, LEGEND = 1000, 60, 560, 320, 660


def rows(files):
    found = {}
    for file in files:
        for line in file.read_text().splitlines():
            row = json.loads(line)
            if "slowdown" in row and row["way"] in ("sharedgpu", *WAYS):
                found[row["case"], row["way"], row["ratio"]] = row
    return list(found.values())


class Panel:
    """A plot of the slowdown, on a logarithmic scale, against the footprint divided by the memory limit."""

    def __init__(self, top, title, most):
        self.top, self.most = top, most
        self.drawn = [text(LEFT, top - 12, title, 13, weight="bold")]
        for value in (scale for scale in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if scale <= most):
            self.drawn.append(line(LEFT, self.y(value), LEFT + ROOM, self.y(value), "#e0e0e0"))
            self.drawn.append(text(LEFT - 6, self.y(value) + 4, f"{value}x", 11, "end"))
        for ratio in (1, 1.25, 1.5, 1.75, 2):
            self.drawn.append(line(self.x(ratio), top, self.x(ratio), top + HEIGHT, "#f0f0f0"))
            self.drawn.append(text(self.x(ratio), top + HEIGHT + 16, f"{ratio:g}", 11, "middle"))
        self.drawn.append(text(LEFT + ROOM / 2, top + HEIGHT + 34, "footprint / memory limit", 12, "middle"))

    def x(self, ratio):
        """A program that fits is drawn at 1."""
        return LEFT + ROOM * (max(ratio, 1) - 0.95) / 1.1

    def y(self, slowdown):
        part = math.log(max(slowdown, 0.9) / 0.9) / math.log(self.most / 0.9)
        return self.top + HEIGHT * (1 - part)

    def points(self, found, value):
        return [(self.x(row["ratio"]), self.y(value(row))) for row in sorted(found, key=lambda row: row["ratio"])]


def line(x, y, to_x, to_y, stroke, width=1.0, dashes=""):
    return (f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke="{stroke}" stroke-width="{width:g}"'
            + (f' stroke-dasharray="{dashes}"/>' if dashes else "/>"))


def curve(points, stroke, width, dashes=""):
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return (f'<polyline points="{joined}" fill="none" stroke="{stroke}" stroke-width="{width:g}"'
            + (f' stroke-dasharray="{dashes}"/>' if dashes else "/>"))


def draw(panel, found):
    """Draws for each program of a group a curve with its lower bound, and letters for the ways of answers.py."""
    names = [case.name for case in CASES if any(row["case"] == case.name for row in found)]
    for number, name in enumerate(names):
        colour, mine = COLOURS[number % len(COLOURS)], [row for row in found if row["case"] == name]
        ours = [row for row in mine if row["way"] == "sharedgpu"]
        panel.drawn.append(curve(panel.points(ours, lambda row: row["bound"] / row["plain"]), colour, 1, "5 4"))
        panel.drawn.append(curve(panel.points(ours, lambda row: row["slowdown"]), colour, 2))
        for row, (x, y) in zip(sorted(ours, key=lambda row: row["ratio"]), panel.points(ours, lambda row: row["slowdown"])):
            fill = colour if row["results"] == "equal" else WRONG
            panel.drawn.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{fill}"/>')
        for row in mine:
            if row["way"] in SHAPES:
                x, y = panel.x(row["ratio"]), panel.y(row["slowdown"])
                panel.drawn.append(f'<g fill="{colour}">{text(x + 6, y + 4, SHAPES[row["way"]], 12, weight="bold")}</g>')
        y = panel.top + 12 + 18 * number
        panel.drawn += [line(LEGEND, y - 4, LEGEND + 24, y - 4, colour, 2), text(LEGEND + 30, y, name)]
    return len(names)


def published(panel, number):
    """Draws the published figures as bars beside the curves, since their ratios of footprint to memory are unknown."""
    top = panel.top + 30 + 18 * number
    panel.drawn.append(text(LEGEND, top, "published, on other machines, from left to right:", 11))
    for place, (name, least, most, said) in enumerate(PUBLISHED):
        x = LEFT + ROOM + 8 + 8 * place
        low, high = panel.y(least), panel.y(most)
        panel.drawn.append(line(x, low + 1.5, x, high - 1.5, MUTED, 4))
        panel.drawn.append(text(LEGEND, top + 18 * (place + 1), f"{name}: {said}", 11))


def picture(found):
    groups = [("trainings and generation", ("training", "generation")), ("other programs", ("other programs",))]
    top, panels = 100, []
    for title, members in groups:
        mine = [row for row in found if row["group"] in members]
        if not mine:
            continue
        with_published = not panels
        most = max([row["slowdown"] for row in mine] + [5.0] + [bar[2] for bar in PUBLISHED if with_published]) * 1.3
        panel = Panel(top, title, most)
        number = draw(panel, mine)
        if with_published:
            published(panel, number)
        panels.append(panel)
        top += HEIGHT + 90
    heads = [text(8, 24, "Slowdown of programs larger than the GPU", 16, weight="bold"),
             text(8, 44, "against plain CUDA with enough memory; dashed: the bound by computation and bus; red: failed or "
                  "wrong", 11),
             text(8, 60, "letters: other ways: F fully_shard, S save_on_cpu; by hand, with Adam on the GPU (H), on the CPU (C)",
                  11)]
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" width="{WIDTH}" height="{top}" '
                      'font-family="sans-serif" fill="#202020">', "<!-- SPDX-License-Identifier: Apache-2.0 -->",
                      f'<rect width="{WIDTH}" height="{top}" fill="#ffffff"/>', *heads,
                      *(each for panel in panels for each in panel.drawn), "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=pathlib.Path, nargs="+", metavar="ROWS.jsonl")
    parser.add_argument("--out", type=pathlib.Path, default=HERE.parent.parent / "docs/plots/oversized.svg")
    options = parser.parse_args()
    found = rows(options.rows)
    if not found:
        raise SystemExit("plot: no row has a slowdown")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(picture(found))


if __name__ == "__main__":
    main()
