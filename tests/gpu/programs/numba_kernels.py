#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Uses numba-cuda: kernels compiled by numba, device arrays, streams, pinned and mapped memory."""
import numpy

if tuple(int(part) for part in numpy.__version__.split(".")[:2]) > (2, 3):
    # numba refuses newer versions of numpy, and looks up names that these versions lack. The functions of numba that
    # this program uses work with newer versions, too.
    numpy.__version__ = "2.3.0"
    for old, new in {"row_stack": "vstack", "in1d": "isin", "trapz": "trapezoid"}.items():
        if not hasattr(numpy, old):
            setattr(numpy, old, getattr(numpy, new))
import numba.cuda as cuda

from ballast import options, result

chosen = options(["kernels"])


@cuda.jit
def mix(data, rounds):
    i = cuda.grid(1)
    if i < data.size:
        value = data[i]
        for r in range(rounds):
            value = (value * 1664525 + 1013904223) & 0xFFFFFFFF
        data[i] = value


words = 1 << 26  # of int64: 512 MiB
blocks = [cuda.to_device(numpy.arange(words, dtype=numpy.int64)) for _ in range(int(chosen.gib * 2))]
lane = cuda.stream()
for step in range(chosen.steps):
    block = blocks[step % len(blocks)]
    mix[(words + 255) // 256, 256, lane](block, 4 + step % 7)
lane.synchronize()
pinned = cuda.pinned_array(words, dtype=numpy.int64)
for i, block in enumerate(blocks):
    block.copy_to_host(pinned, stream=lane)
    lane.synchronize()
    result(f"block {i}", pinned.tobytes())
