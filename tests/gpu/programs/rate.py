#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Multiplies matrices on the GPU until a point in time, and prints as JSON how many rounds it did in the window before, and
how many deadlines it met and missed there.

usage: rate.py SIZE PRODUCTS BEGIN END [PERIOD DEADLINE]

A round is so many products of SIZE x SIZE matrices, and a wait for them. BEGIN and END are seconds since 1970. With PERIOD
a round begins every so many seconds; it has missed its deadline where it has not ended within DEADLINE seconds of that.
"""
import json
import sys
import time

import torch

try:
    from sharedgpu_deadline import tell
except ImportError:
    def tell(_met):
        pass

size, products = int(sys.argv[1]), int(sys.argv[2])
begin, end = float(sys.argv[3]), float(sys.argv[4])
period, deadline = (float(sys.argv[5]), float(sys.argv[6])) if len(sys.argv) > 5 else (0, 0)
a = torch.randn(size, size, device="cuda") / size**0.5
rounds = met = missed = 0
due = time.time()
while (now := time.time()) < end:
    if period:
        if now < due:
            time.sleep(due - now)
            continue
        due += period
        now = due - period
    for _ in range(products):
        a = torch.tanh(a @ a)
    torch.cuda.synchronize()
    done = time.time()
    good = not period or done - now <= deadline
    if period:
        tell(good)
    if begin <= done < end:
        rounds += 1
        met += good
        missed += not good
print(json.dumps({"rounds": rounds, "met": met, "missed": missed}))
