# SPDX-License-Identifier: Apache-2.0
"""The compared cases as data, and the runs of each."""
from dataclasses import dataclass

# Footprint of a tenant, as a fraction of DeviceMemoryLimit. In the thesis on nvshare, "big" uses 15.3 GB and "small"
# 7.2 GB of a GPU's 16 GB.
BIG, SMALL = 0.95, 0.45
FITS, TWICE = 0.9, 1.9  # total footprint of several tenants


@dataclass(frozen=True)
class Role:
    """One or several tenants of one kind. `seconds` is the duration of one of them alone, in units of --seconds."""
    kind: str
    memory: float
    copies: int = 1
    seconds: float = 1.0
    gpu: float = 1.0  # the fraction of the time that is GPU work; the rest is CPU work
    unchanged: bool = False  # the tenants' memory does not change, so evictions need no copies


@dataclass(frozen=True)
class Case:
    name: str
    group: str
    roles: tuple[Role, ...]
    quanta: bool = False  # the case is also run with fixed quanta

    @property
    def tenants(self):
        return [role for role in self.roles for _ in range(role.copies)]

    @property
    def fits(self):
        return sum(role.memory for role in self.tenants) <= 1

    @property
    def at_once(self):
        """The number of the case's tenants that fit together; one if the tenants differ and do not all fit."""
        if self.fits:
            return len(self.tenants)
        return int(1 / self.roles[0].memory) if len(self.roles) == 1 else 1


def mix(name, memory, gpu):
    return Case(name, "mixes", (Role("mix", memory, copies=2, gpu=gpu),), quanta=memory == BIG)


def several(name, group, number, together):
    # All tenants together have as much work as two tenants of a mix.
    return Case(name, group, (Role("mix", together / number, copies=number, seconds=2 / number),))


CASES = (
    mix("big_90", BIG, 0.9),
    mix("big_50", BIG, 0.5),
    mix("small_90", SMALL, 0.9),
    mix("small_50", SMALL, 0.5),
    *(several(f"fits_{n}", "memory suffices", n, FITS) for n in (2, 3, 4, 8)),
    *(several(f"twice_{n}", "oversubscribed twice", n, TWICE) for n in (2, 3, 4, 8)),
    Case("interactive", "unlike tenants", (Role("hog", 0.9, seconds=1.25), Role("interactive", 0.25))),
    Case("inference", "unlike tenants", (Role("mix", 0.9), Role("inference", 2 / 3, unchanged=True))),
)


@dataclass(frozen=True)
class Run:
    """One measurement of a case: the tenants that run at the same time, and the way of sharing."""
    name: str
    tenants: tuple[int, ...]  # indices into Case.tenants
    arbiter: bool = True
    quantum: str | None = None  # None: the arbiter chooses the quantum
    backend: str | None = None


def runs(case, quanta):
    """The runs of the case. The reference runs come first, since the other runs are compared with them."""
    everybody = tuple(range(len(case.tenants)))
    first = 0
    for role in case.roles:
        yield Run(f"alone: {role.kind}", (first,), arbiter=False)
        first += role.copies
    if case.fits:
        yield Run("plain CUDA together", everybody, arbiter=False)
    elif case.at_once > 1:
        yield Run(f"plain CUDA, {case.at_once} together", everybody[:case.at_once], arbiter=False)
    yield Run("sharedgpu", everybody)
    if case.quanta:
        for quantum in quanta:
            yield Run(f"sharedgpu, Quantum={quantum}", everybody, quantum=quantum)
    yield Run("managed", everybody, backend="managed")
