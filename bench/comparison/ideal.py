# SPDX-License-Identifier: Apache-2.0
"""The least time that the machine allows for a case: a pure function of the measurements alone, of the bus, and of the
number of handoffs.

The GPU is one resource. Sets of tenants that do not fit together exclude each other, so their phases on the GPU come one
after the other; phases on the CPU overlap everything. Where tenants fit together there is nothing to compute: plain CUDA
together is the ideal.
"""
from dataclasses import dataclass


@dataclass(frozen=True)
class Bus:
    """Bytes per second of pinned copies; `both`: the sum of both directions at once."""
    inwards: float
    outwards: float
    both: float


@dataclass(frozen=True)
class Alone:
    """The phases of a tenant alone: ("gpu" or "cpu", seconds) in order."""
    phases: tuple[tuple[str, float], ...]

    @property
    def total(self):
        return sum(seconds for _, seconds in self.phases)

    @property
    def gpu(self):
        return sum(seconds for where, seconds in self.phases if where == "gpu")

    @property
    def head(self):
        """Seconds before it first needs the GPU."""
        return before_gpu(self.phases)

    @property
    def tail(self):
        """Seconds after it last needed the GPU."""
        return before_gpu(reversed(self.phases))


def before_gpu(phases):
    seconds = 0.0
    for where, length in phases:
        if where == "gpu":
            break
        seconds += length
    return seconds


def exchanged_bytes(incoming, running, sets, capacity):
    """The least number of bytes that a set of `incoming` bytes lacks at its turn, if `sets` take turns and one of
    `running` bytes leaves: all waiting sets share the rest of the GPU."""
    kept = max(0.0, capacity - running) / (sets - 1)
    return max(0.0, incoming - kept)


def handoff_seconds(bytes_out, bytes_in, bus):
    """Seconds of simultaneous copies of this size in each direction."""
    return max(bytes_in / bus.inwards, bytes_out / bus.outwards, (bytes_in + bytes_out) / bus.both)


def excluding(tenants, handoffs, packing=1.0):
    """`tenants`: an Alone of each; `handoffs`: seconds in all; `packing`: time of a set that fits together on plain
    CUDA, divided by the sum of its tenants' times alone."""
    gpu = packing * sum(tenant.gpu for tenant in tenants)
    heads = min(tenant.head for tenant in tenants)
    tails = min(tenant.tail for tenant in tenants)
    return max(max(tenant.total for tenant in tenants), heads + gpu + handoffs + tails)
