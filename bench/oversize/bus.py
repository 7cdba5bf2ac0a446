#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the bus between host and GPU with PyTorch, by copies of pinned host memory: to the GPU, from the GPU, and
both at once. Prints a JSON object: bytes per second (`both`: the sum of both directions), the GPU's name and its
memory."""
import argparse
import json
import time

import torch

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--mib", type=int, default=1024, help="size of a copy; default %(default)s")
parser.add_argument("--rounds", type=int, default=5)


def main():
    options = parser.parse_args()
    size = options.mib * 2**20
    device = [torch.ones(size, dtype=torch.uint8, device="cuda") for _ in range(2)]
    host = [torch.ones(size, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
    streams = [torch.cuda.Stream() for _ in range(2)]

    def copy_in():
        with torch.cuda.stream(streams[0]):
            device[0].copy_(host[0], non_blocking=True)

    def copy_out():
        with torch.cuda.stream(streams[1]):
            host[1].copy_(device[1], non_blocking=True)

    def best(*copies):
        """Bytes per second of the shortest round, since interference can only slow a round down."""
        rounds = []
        for _ in range(1 + options.rounds):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for copy in copies:
                copy()
            torch.cuda.synchronize()
            rounds.append(time.perf_counter() - begin)
        return len(copies) * size / min(rounds[1:])

    print(json.dumps({"gpu": torch.cuda.get_device_name(), "total_bytes": torch.cuda.mem_get_info()[1],
                      "in": best(copy_in), "out": best(copy_out), "both": best(copy_in, copy_out)}))


if __name__ == "__main__":
    main()
