# SPDX-License-Identifier: Apache-2.0
"""Draws the total times and their ratios to the ideal as bars in an SVG."""
from html import escape

WIDTH, LABEL, BAR, GAP, HEAD = 1000, 250, 18, 14, 54
PANEL = (WIDTH - LABEL) // 2 - 30
# The colour of a run, by the beginning of the run's name. Reference runs are grey. The colours also differ in
# lightness.
COLOURS = (("alone", "#d8d8d8"), ("serial", "#b0b0b0"), ("plain", "#808080"), ("sharedgpu", "#1f5fa8"),
           ("managed", "#e0a030"))


def colour(name):
    return next(value for beginning, value in COLOURS if name.startswith(beginning))


def text(x, y, words, size=12, anchor="start", weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}">'
            f"{escape(words)}</text>")


def line(x, top, bottom, stroke, width):
    return f'<line x1="{x:.1f}" y1="{top:.1f}" x2="{x:.1f}" y2="{bottom:.1f}" stroke="{stroke}" stroke-width="{width}"/>'


def bar(x, y, length, name, words):
    return (f'<rect x="{x}" y="{y}" width="{max(length, 1):.1f}" height="{BAR - 4}" fill="{colour(name)}"/>'
            + text(x + length + 5, y + BAR - 7, words, 11))


def chart(title, rows):
    """Draws one bar for each row in the panel of times, and one for each row with an ideal in the panel of ratios. In the
    panel of times, a line across the bar marks the row's ideal. In the panel of ratios, one line marks the ratio 1."""
    seconds_at, ratio_at = LABEL, LABEL + PANEL + 60
    room = PANEL - 60  # leaves room for the numbers to the right of the bars
    most = max(max(row.seconds, row.ideal or 0) for row in rows)
    ratios = [row.seconds / row.ideal for row in rows if row.ideal]
    highest = max(ratios + [1.0])
    drawn, y, case = [], HEAD, None
    for row in rows:
        if row.case != case:
            case, y = row.case, y + GAP
            drawn.append(text(8, y + BAR - 7, case, 13, weight="bold"))
        drawn.append(text(LABEL - 8, y + BAR - 7, row.name, anchor="end"))
        drawn.append(bar(seconds_at, y, room * row.seconds / most, row.name, f"{row.seconds:.2f} s"))
        if row.ideal:
            drawn.append(line(seconds_at + room * row.ideal / most, y - 2, y + BAR - 2, "#c02020", 2))
            ratio = row.seconds / row.ideal
            drawn.append(bar(ratio_at, y, room * ratio / highest, row.name, f"{ratio:.3f}"))
        y += BAR
    height = y + 20
    one = line(ratio_at + room / highest, HEAD, y, "#c02020", 1)
    heads = [text(8, 22, title, 16, weight="bold"), text(seconds_at, 44, "total time (red: the ideal)"),
             text(ratio_at, 44, "ratio to the ideal")]
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
                      f'height="{height}" font-family="sans-serif" fill="#202020">',
                      f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>', *heads, *drawn, one, "</svg>"]) + "\n"
