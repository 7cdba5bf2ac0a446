#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Works on a number of GiB for a number of seconds. Prints, as JSON, when its first CUDA call began and when its last CUDA
call ended, in seconds since 1970."""
import json
import sys
import time

import torch

gib, seconds = float(sys.argv[1]), float(sys.argv[2])
first = time.time()
blocks = [torch.zeros(1 << 27, dtype=torch.int32, device="cuda") for _ in range(max(1, round(gib * 2)))]
rounds = 0
while time.time() - first < seconds:
    for block in blocks:
        block.add_(1)
    rounds += 1
    torch.cuda.synchronize()
right = all(bool((block == rounds).all()) for block in blocks)
last = time.time()
assert right, "the memory has changed"
print(json.dumps({"first": first, "last": last, "rounds": rounds}))
