# SPDX-License-Identifier: Apache-2.0
"""Writes the results as Markdown tables."""
import statistics


def number(value, form):
    return "" if value is None else format(value, form)


def totals(rows):
    lines = ["| case | run | total | of serial | handoffs | each (median) | ideal | of the ideal |",
             "|---|---|---|---|---|---|---|---|"]
    for row in rows:
        lines.append(f"| {row.case} | {row.name} | {row.seconds:.2f} s | {row.seconds / row.serial:.3f} | "
                     f"{row.handoffs:g} | {number(row.handoff_seconds, '.3f')} | {number(row.ideal, '.2f')} | "
                     f"{number(row.ideal and row.seconds / row.ideal, '.3f')} |")
    return lines


def waits(all_waits):
    lines = ["| case | run | bursts | median | p95 | its own restore | p95 less that |", "|---|---|---|---|---|---|---|"]
    for each in all_waits:
        lines.append(f"| {each.case} | {each.name} | {each.cells} | {each.median * 1e3:.1f} ms | {each.p95 * 1e3:.1f} ms | "
                     f"{each.restore * 1e3:.1f} ms | {(each.p95 - each.restore) * 1e3:.1f} ms |")
    return lines


def median_of(values, form):
    return number(statistics.median(values) if values else None, form)


def turns(all_turns):
    lines = ["| case | run | tenant | handoffs to it | each | evictions after the first | each | copied | unchanged | "
             "uniform |", "|---|---|---|---|---|---|---|---|---|---|"]
    for each in all_turns:
        parts = (("seconds", ".3f"), ("copied", ".0f"), ("unchanged", ".0f"), ("uniform", ".0f"))
        found = " | ".join(median_of([eviction[part] for eviction in each.later], form) for part, form in parts)
        lines.append(f"| {each.case} | {each.name} | {each.kind} | {len(each.handoffs)} | "
                     f"{median_of(each.handoffs, '.3f')} | {len(each.later)} | {found} |")
    return lines


def document(machine, settings, rows, all_waits, all_turns, failures):
    bus = machine["bus"]
    lines = ["# sharedgpu compared", "",
             f"{machine['gpu']}, {machine['total_bytes'] / 2**30:.1f} GiB. The bus: {bus['in'] / 1e9:.1f} GB/s in, "
             f"{bus['out'] / 1e9:.1f} out, {bus['both'] / 1e9:.1f} both at once. "
             f"DeviceMemoryLimit={settings['limit'] // 2**20}MiB; --program {settings['program']} "
             f"--seconds {settings['seconds']:g}.",
             "", "Totals are from the first tenant's beginning to the last one's end.", "", *totals(rows)]
    if all_waits:
        lines += ["", "From an interactive tenant's first launch of a burst to the end of that kernel:", "",
                  *waits(all_waits)]
    if all_turns:
        lines += ["", "Turns of unlike tenants, in medians: seconds from the other's release to the lease; evictions in "
                  "seconds and MiB:", "", *turns(all_turns)]
    lines += ["", "All programs had the same results as alone." if not failures else "Failed:", ""]
    lines += [f"- {failure}" for failure in failures]
    return "\n".join(lines).rstrip() + "\n"
