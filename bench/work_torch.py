#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program with deterministic work for bench/compare, in PyTorch. A GPU step trains a deep MLP with Adam; with the
kind inference, it only runs the MLP forwards. A CPU step trains a small MLP in a single thread. Each GPU step touches
all of the program's memory on the GPU. --gib is all memory that PyTorch takes from the driver.

The last line on stdout is a JSON object: its times are seconds of CLOCK_MONOTONIC. `result` is a digest of all losses
and of the weights. It does not include the CPU steps, since no other program could change their memory.
"""
import argparse
import hashlib
import json
import os
import struct
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
MIB = 2**20
WIDTH = 4096
WEIGHT = WIDTH * WIDTH * 4
# Rows of a batch. Training keeps two activations per layer for the backward pass, in segments of their own.
BATCH = {"training": 1024, "inference": 64}
LAYER = {"training": 4 * WEIGHT + 2 * BATCH["training"] * WIDTH * 4, "inference": WEIGHT}
BESIDE = 512 * MIB  # room for cuBLAS, temporaries, and waste in segments; the filler takes the rest
LOOK = {"hog": 64}  # steps between two reads of the loss, each of which waits for the GPU
USUAL_LOOK = 10


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=("mix", "inference", "interactive", "hog"), default="mix")
    parser.add_argument("--gib", type=float, default=4)
    parser.add_argument("--gpu-steps", type=int, default=10, help="number of steps on the GPU (kind interactive: in each burst)")
    parser.add_argument("--cpu-steps", type=int, default=0)
    parser.add_argument("--order", choices=("gpu-cpu", "cpu-gpu"), default="gpu-cpu")
    parser.add_argument("--cells", type=int, default=0, help="kind interactive: number of bursts")
    parser.add_argument("--pause-ms", type=float, default=1000, help="kind interactive: time before each burst")
    parser.add_argument("--wait", action="store_true",
                        help="print 'ready' when the context exists, and begin after a line on stdin")
    return parser.parse_args()


options = parse()
import torch  # imported after the options are parsed, since it takes seconds


class Network:
    """Residual layers: each adds its output to its input, so that values neither explode nor vanish in a hundred
    layers."""

    def __init__(self, layers, width, device, trained):
        generator = torch.Generator(device=device).manual_seed(1)
        self.weights = []
        for _ in range(layers):
            weight = torch.empty(width, width, device=device).normal_(0, width**-0.5, generator=generator)
            self.weights.append(weight.requires_grad_(trained))

    def __call__(self, x):
        for weight in self.weights:
            x = torch.add(x, torch.nn.functional.gelu(x @ weight), alpha=0.1)
        return x


class GpuWork:
    def __init__(self, kind, size):
        self.trains = kind != "inference"
        sort = "training" if self.trains else "inference"
        self.look_every = LOOK.get(kind, USUAL_LOOK)
        self.digest = hashlib.sha256()
        self.taken = 0
        layers = (size - BESIDE) // LAYER[sort]
        if layers < 1:
            raise SystemExit(f"work_torch: {size / 2**30:.2f} GiB are too few")
        self.network = Network(layers, WIDTH, "cuda", self.trains)
        self.generator = torch.Generator(device="cuda").manual_seed(2)
        self.input = torch.empty(BATCH[sort], WIDTH, device="cuda")
        self.start = torch.zeros(1, device="cuda")
        self.filler = torch.zeros(1, device="cuda")
        if self.trains:
            self.optimizer = torch.optim.Adam(self.network.weights, lr=1e-4, fused=True)
        # The second step needs no new memory from the driver, since the first step has made the optimizer's state.
        self.steps(2)
        self.weights_digest()
        lacking = size - torch.cuda.memory_reserved()
        if lacking < 0:
            raise SystemExit(f"work_torch: {-lacking / MIB:.0f} MiB more than asked for are taken already")
        if lacking >= 12 * MIB:  # PyTorch puts smaller tensors into a shared segment of 20 MiB
            self.filler = torch.zeros(lacking // (2 * MIB) * (2 * MIB) // 4, device="cuda")
        torch.cuda.synchronize()

    def step(self):
        self.input.normal_(0, 1, generator=self.generator)
        if self.trains:
            loss = (self.network(self.input) - self.input).square().mean()
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            self.filler.add_(1)
        else:
            with torch.no_grad():
                loss = self.network(self.input).square().mean()
                self.filler.max()
        self.taken += 1
        if self.taken % self.look_every == 0:
            self.digest.update(struct.pack("<f", loss.item()))

    def steps(self, count):
        for _ in range(count):
            self.step()
        torch.cuda.synchronize()

    def cell(self, steps):
        launch = time.monotonic()
        self.start.add_(1)
        torch.cuda.synchronize()
        start = time.monotonic()
        self.steps(steps)
        return {"launch": launch, "start": start, "end": time.monotonic()}

    def weights_digest(self):
        """For each layer, the sum of its weights' bit patterns as 32-bit integers."""
        return [int(w.detach().view(torch.int32).sum(dtype=torch.int64).item()) for w in self.network.weights]

    def result(self):
        self.digest.update(repr(self.weights_digest()).encode())
        self.digest.update(struct.pack("<d", self.filler[-1].item()))
        return self.digest.hexdigest()[:16]


class CpuWork:
    """Work on the CPU. Its data stay in the cache of one core, so memory traffic of other programs does not slow the
    work down."""

    def __init__(self):
        self.network = Network(4, 128, "cpu", True)
        self.optimizer = torch.optim.SGD(self.network.weights, lr=1e-3)
        self.input = torch.ones(128, 128)

    def step(self):
        for _ in range(25):
            (self.network(self.input) - 1).square().mean().backward()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=False)


def prepare():
    """Makes the CUDA context and lets cuBLAS load its kernels before the measurement."""
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    a = torch.ones(64, 64, device="cuda")
    (a @ a).sum().item()


def main():
    prepare()
    if options.wait:
        print("ready", flush=True)
        if not sys.stdin.readline():
            raise SystemExit("work_torch: stdin ended before the line to begin with")

    phases, cells = [], []
    begin = time.monotonic()

    def timed(where, steps, work):
        start = time.monotonic()
        done = work()
        phases.append({"where": where, "steps": steps, "seconds": time.monotonic() - start})
        return done

    def cpu():
        def work():
            on_cpu = CpuWork()
            for _ in range(options.cpu_steps):
                on_cpu.step()
        if options.cpu_steps:
            timed("cpu", options.cpu_steps, work)

    if options.order == "cpu-gpu":
        cpu()
    gpu = timed("gpu", 0, lambda: GpuWork(options.kind, int(options.gib * 2**30)))
    if options.kind == "interactive":
        for _ in range(options.cells):
            timed("cpu", 1, lambda: time.sleep(options.pause_ms / 1e3))
            cells.append(timed("gpu", options.gpu_steps, lambda: gpu.cell(options.gpu_steps)))
        result = gpu.result()
    else:
        def work():
            gpu.steps(options.gpu_steps)
            return gpu.result()
        result = timed("gpu", options.gpu_steps, work)
    if options.order == "gpu-cpu":
        cpu()
    end = time.monotonic()
    print(json.dumps({"kind": options.kind, "pid": os.getpid(), "begin": begin, "end": end,
                      "bytes": torch.cuda.max_memory_reserved(), "result": result, "phases": phases, "cells": cells}))


if __name__ == "__main__":
    main()
