#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times frequent operations of programs, in one process. Prints a JSON object with the seconds of each operation, the
median of several rounds.

The environment variable ONLY has the beginnings of the names of the cases to time, separated by commas; by default all
cases are timed. The start is always timed.
"""
import itertools
import json
import os
import time

begin = time.perf_counter()
import ctypes

driver = ctypes.CDLL("libcuda.so.1")
device, context = ctypes.c_int(), ctypes.c_void_p()
assert driver.cuInit(0) == 0
assert driver.cuDeviceGet(ctypes.byref(device), 0) == 0
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
times = {"start": time.perf_counter() - begin}

only = os.environ.get("ONLY", "").split(",")
if only != ["start"]:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = True

    def timed(name, work, repeats, rounds=9):
        if not any(name.startswith(each) for each in only):
            return
        work()
        torch.cuda.synchronize()
        best = []
        for _ in range(rounds):
            start = time.perf_counter()
            for _ in range(repeats):
                work()
            torch.cuda.synchronize()
            best.append((time.perf_counter() - start) / repeats)
        best.sort()
        times[name] = best[len(best) // 2]

    small = torch.zeros(32, device="cuda")
    timed("tiny kernel", lambda: small.add_(1), 20000)

    # Replays several graphs in turn, because the times of equal graphs differ by up to 15% (bench_replay).
    graphs, static = [torch.cuda.CUDAGraph() for _ in range(16)], torch.zeros(32, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        static.add_(1)
    torch.cuda.synchronize()
    for graph in graphs:
        with torch.cuda.graph(graph):
            for _ in range(10):
                static.add_(1)
    nth = itertools.cycle(graphs)
    timed("replay of a graph of 10 kernels", lambda: next(nth).replay(), 10000)

    torch.manual_seed(1)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 64, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(64, 64, 3, padding=1), torch.nn.ReLU(),
        torch.nn.MaxPool2d(2), torch.nn.Conv2d(64, 128, 3, padding=1), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(128, 100)).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    images, labels = torch.randn(256, 3, 64, 64, device="cuda"), torch.randint(0, 100, (256,), device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(net(images), labels).backward()
        optimizer.step()

    timed("training step (small CNN)", step, 60)

    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    timed("8192^3 bf16 product", lambda: a @ a, 60)

    def blocks():
        held = [torch.empty(n << 20, dtype=torch.uint8, device="cuda") for n in (1, 3, 24, 200)]
        del held

    timed("4 tensors from the caching allocator", blocks, 2000)

    def cuda_blocks():
        blocks()
        torch.cuda.empty_cache()

    timed("the same from cudaMalloc", cuda_blocks, 20)

print(json.dumps(times))
