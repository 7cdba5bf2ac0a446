#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds a number of GiB on each GPU and works on all of this memory until SIGTERM; then verifies every word."""
import signal
import sys

import torch

stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
blocks = [torch.zeros(1 << 27, dtype=torch.int32, device=gpu)
          for gpu in range(torch.cuda.device_count()) for _ in range(int(float(sys.argv[1]) * 2))]
rounds = 0
while not stop:
    for block in blocks:
        block.add_(1)
    rounds += 1
    for gpu in range(torch.cuda.device_count()):
        torch.cuda.synchronize(gpu)
assert all(bool((block == rounds).all()) for block in blocks), "the memory has changed"
print(f"result rounds {rounds}")
