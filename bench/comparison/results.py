# SPDX-License-Identifier: Apache-2.0
"""The rows of a case in the table, computed from its measurements."""
import statistics
from dataclasses import dataclass

from comparison.ideal import Alone, excluding, exchanged_bytes, handoff_seconds


@dataclass(frozen=True)
class Row:
    case: str
    name: str
    seconds: float
    serial: float
    ideal: float | None  # None for a reference run, and if a run that is needed to compute it is missing
    handoffs: float  # number of times that the GPU passed from one set of tenants to the next
    handoff_seconds: float | None  # median time from a release to the next lease


@dataclass(frozen=True)
class Waits:
    """Seconds from the launch of an interactive tenant's burst until its first kernel had run."""
    case: str
    name: str
    cells: int
    median: float
    p95: float
    restore: float  # the time that the bus needs to restore the tenant's evicted memory


def total(run):
    """Seconds from the beginning of the first program to the end of the last one."""
    return max(p["end"] for p in run["programs"]) - min(p["begin"] for p in run["programs"])


def alone(run):
    program = run["programs"][0]
    return Alone(tuple((phase["where"], phase["seconds"]) for phase in program["phases"]))


def good(measured):
    return {name: run for name, run in measured.items() if "error" not in run}


def wrong(case, run, measured, outcome):
    """A message about the first program whose result differs from that of its role's run alone; "" if there is none."""
    for number, program in zip(run.tenants, outcome["programs"]):
        kind = case.tenants[number].kind
        wanted = measured.get(f"alone: {kind}", outcome)["programs"][0]["result"]
        if program["result"] != wanted:
            return f"the {kind} of pid {program['pid']} has the result {program['result']}; alone, it has {wanted}"
    return ""


def of_tenants(case, measured):
    """For each tenant of the case, the run of its role alone; None if any of these runs is missing or has failed."""
    found = [good(measured).get(f"alone: {role.kind}") for role in case.tenants]
    return None if None in found else found


def packing(case, measured, solos):
    """The time of tenants that fit together on plain CUDA, divided by the sum of their times alone; 1 if they were not
    measured together."""
    together = measured.get(f"plain CUDA, {case.at_once} together")
    return total(together) / sum(alone(solo).total for solo in solos[:case.at_once]) if together else 1.0


def exchanged(case, sizes, number, capacity):
    """Bytes that must be restored for the tenant with this number at the beginning of its turn."""
    if len(case.roles) > 1:
        others = max(size for other, size in enumerate(sizes) if other != number)
        return exchanged_bytes(sizes[number], others, 2, capacity)
    sets = -(-len(sizes) // case.at_once)
    together = sizes[number] * case.at_once
    return exchanged_bytes(together, together, sets, capacity) / case.at_once


def copies(case, sizes, entered, capacity, bus):
    """Seconds that the bus needs to move the memory for the turns of these tenants."""
    seconds = 0.0
    for number in entered:
        lacking = exchanged(case, sizes, number, capacity)
        others = [role for other, role in enumerate(case.tenants) if other != number]
        out = 0 if all(role.unchanged for role in others) else lacking
        seconds += handoff_seconds(out, lacking, bus)
    return seconds


def rows(case, measured, capacity, bus):
    solos = of_tenants(case, measured)
    if not solos:
        return []
    measured = good(measured)
    tenants = [alone(solo) for solo in solos]
    sizes = [solo["programs"][0]["bytes"] for solo in solos]
    serial = sum(tenant.total for tenant in tenants)
    found = [Row(case.name, name, total(run), serial, None, 0, None)
             for name, run in measured.items() if name.startswith("alone: ")]
    found.append(Row(case.name, "serial", serial, serial, None, 0, None))
    for name, run in measured.items():
        if name.startswith(("alone: ", "plain CUDA, ")):
            continue  # this run has a row already, or is used only to compute the ideal
        if case.fits:
            together = measured.get("plain CUDA together")
            ideal = total(together) if together else None
        else:
            entered = [entry["tenant"] for entry in run["entries"]]
            ideal = excluding(tenants, copies(case, sizes, entered, capacity, bus), packing(case, measured, solos))
        lengths = [entry["seconds"] for entry in run["entries"]]
        found.append(Row(case.name, name, total(run), serial, ideal, len(lengths) / (1 if case.fits else case.at_once),
                         statistics.median(lengths) if lengths else None))
    return found


def percentile(values, part):
    """A percentile: the smallest value that is at least as large as the fraction `part` of the values."""
    ordered = sorted(values)
    return ordered[max(0, -(-int(part * 100) * len(ordered) // 100) - 1)]


def waits(case, measured, capacity, bus):
    """Waits of the bursts ("cells") that began while all other programs ran."""
    found = []
    for name, run in good(measured).items():
        tenants = case.tenants if len(run["programs"]) == len(case.tenants) else None
        for number, program in enumerate(run["programs"]):
            others = [p for p in run["programs"] if p is not program]
            until = min((p["end"] for p in others), default=float("inf"))
            cells = [c["start"] - c["launch"] for c in program["cells"] if c["launch"] < until]
            if not cells:
                continue
            lacking = exchanged(case, [p["bytes"] for p in run["programs"]], number, capacity) if tenants else 0
            found.append(Waits(case.name, name, len(cells), statistics.median(cells), percentile(cells, 0.95),
                               lacking / bus.inwards))
    return found


@dataclass(frozen=True)
class Turns:
    """The handoffs to tenants of one kind, and their evictions, in a case whose tenants differ."""
    case: str
    name: str
    kind: str
    handoffs: list[float]  # seconds of each handoff to a tenant of this kind
    later: list[dict]  # the tenant's evictions, without the first, for which host memory had no earlier copy


def turns(case, measured):
    found = []
    if len(case.roles) < 2:
        return found
    for name, run in good(measured).items():
        for number, program in enumerate(run["programs"] if len(run["programs"]) > 1 else []):
            seconds = [entry["seconds"] for entry in run["entries"] if entry["tenant"] == number]
            found.append(Turns(case.name, name, case.tenants[number].kind, seconds, program["evictions"][1:]))
    return found
