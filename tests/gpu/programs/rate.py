#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Multiplies matrices on the GPU until END. Prints as JSON how many rounds it did between BEGIN and END, and how many
deadlines it met and missed in that time.

usage: rate.py SIZE PRODUCTS BEGIN END [PERIOD DEADLINE]

A round computes PRODUCTS products of SIZE x SIZE matrices and waits for them. BEGIN and END are seconds since 1970.
With PERIOD, a round is due every PERIOD seconds, and misses its deadline if it ends more than DEADLINE seconds later.
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
