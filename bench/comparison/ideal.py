# SPDX-License-Identifier: Apache-2.0
"""The least time that the machine allows for a case. It is computed from a run of each tenant alone, the speed of the
bus and the number of handoffs.

The GPU is one resource. Sets of tenants that do not fit together exclude each other, so their phases on the GPU come one
after the other; a phase on the CPU may overlap any other phase. If all tenants fit together, nothing is computed: their time
together on plain CUDA is the ideal.
"""
from dataclasses import dataclass


@dataclass(frozen=True)
class Bus:
    """Bytes per second of copies of pinned memory; `both`: the sum of both directions when used at the same time."""
    inwards: float
    outwards: float
    both: float


@dataclass(frozen=True)
class Alone:
    """A tenant's run alone as a list of phases in order: ("gpu" or "cpu", seconds)."""
    phases: tuple[tuple[str, float], ...]

    @property
    def total(self):
        return sum(seconds for _, seconds in self.phases)

    @property
    def gpu(self):
        return sum(seconds for where, seconds in self.phases if where == "gpu")

    @property
    def head(self):
        """Seconds before the tenant first needs the GPU."""
        return before_gpu(self.phases)

    @property
    def tail(self):
        """Seconds after the tenant last needed the GPU."""
        return before_gpu(reversed(self.phases))


def before_gpu(phases):
    seconds = 0.0
    for where, length in phases:
        if where == "gpu":
            break
        seconds += length
    return seconds


def exchanged_bytes(incoming, running, sets, capacity):
    """The least number of bytes that must be restored at the turn of a set of `incoming` bytes. `sets` sets take turns,
    a set of `running` bytes leaves, and all waiting sets share the rest of the GPU."""
    kept = max(0.0, capacity - running) / (sets - 1)
    return max(0.0, incoming - kept)


def handoff_seconds(bytes_out, bytes_in, bus):
    """Seconds of simultaneous copies of these sizes in the two directions."""
    return max(bytes_in / bus.inwards, bytes_out / bus.outwards, (bytes_in + bytes_out) / bus.both)


def excluding(tenants, handoffs, packing=1.0):
    """The ideal time of tenants that exclude each other. `tenants`: an Alone of each; `handoffs`: total seconds;
    `packing`: time of a set of tenants that run together on plain CUDA, divided by the sum of their times alone."""
    gpu = packing * sum(tenant.gpu for tenant in tenants)
    heads = min(tenant.head for tenant in tenants)
    tails = min(tenant.tail for tenant in tenants)
    return max(max(tenant.total for tenant in tenants), heads + gpu + handoffs + tails)
