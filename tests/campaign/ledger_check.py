# SPDX-License-Identifier: Apache-2.0
# Compares a ledger with the times at which the processes of its tenants began and ended.
import collections
from datetime import datetime

SETTLES = 2.5  # seconds by which a lease may end after its process: if a process ends while no arbiter runs, only the
               # next arbiter notices the end


def moment(text):
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%f%z").timestamp()


def tenants_by_pid(folder):
    """Returns, for each run by name, the pid of the process with the run's latest session."""
    seen = {}
    for path in sorted(folder.glob("ledger*"), key=lambda each: each.stat().st_mtime):
        if path.suffix == ".new":
            continue
        for line in path.read_text(errors="replace").splitlines():
            words = line.split()
            if len(words) > 7 and words[2] == "session":
                seen[f"run {words[4]}"] = int(words[7])
    return seen


def check(node, ended):
    """Returns the number of leases, and the faults in them."""
    turns = node.ledger("--by", "turn")
    steps = node.ledger("--by", "step")
    if turns is None or steps is None:
        return 0, ["the ledger cannot be read"]
    wrong = []
    wrong += [f"an open lease of {turn['tenant']}" for turn in turns if turn["open"]]
    of_pid = tenants_by_pid(node.state)
    life = {tenant.process.pid: tenant for tenant in ended}
    lasted = collections.defaultdict(list)
    for turn in turns:
        first, last = moment(turn["first"]), moment(turn["last"])
        if abs(last - first - turn["lease_seconds"]) > 1e-3:
            wrong.append(f"{turn} is not as long as it says")
        lasted[turn["tenant"], turn["gpu"]].append((first, last))
        tenant = life.get(of_pid.get(turn["tenant"]))
        if tenant is None:
            wrong.append(f"a lease of {turn['tenant']}, which is no process of this campaign")
        elif first < tenant.began - 0.1 or last > tenant.ended + SETTLES:
            wrong.append(f"{turn} of a tenant that lived from {tenant.began} to {tenant.ended}")
    for name, leases in lasted.items():
        leases.sort()
        for (_, last), (first, _) in zip(leases, leases[1:]):
            if first < last - 1e-5:
                wrong.append(f"two leases of {name} at once, by {last - first} s")
    by_turn = sum(turn["lease_seconds"] for turn in turns)
    by_step = sum(step["lease_seconds"] for step in steps)
    if abs(by_turn - by_step) > 1e-3 * max(1, len(turns)):
        wrong.append(f"turns add up to {by_turn} s, steps to {by_step} s")
    return len(turns), wrong
