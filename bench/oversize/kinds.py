#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs of several kinds that touch much memory, each about --gib. Prints the lines that report.py describes. If a
framework is missing, prints `skipped` and the reason, with exit status 0.

All results are bit for bit the same in each run: sums whose order may differ add whole numbers only.
"""
import argparse
import os
import sys

import report

GIB = 2**30
PART = GIB // 2  # bytes of each array in programs with many arrays


def smooth(most):
    """The largest number up to `most` without a prime factor above 7: cuFFT is fast for such sizes."""
    def rest(number):
        for prime in (2, 3, 5, 7):
            while number % prime == 0:
                number //= prime
        return number
    return next(number for number in range(most, 0, -1) if rest(number) == 1)


def generator(torch, seed=2):
    return torch.Generator(device="cuda").manual_seed(seed)


class Torch:
    """A program in PyTorch: `step` runs an iteration, and `results` returns the tensors that the digest covers."""
    deterministic = True
    reads = writes = None  # bytes that an iteration must read and write; None: all of the footprint

    def __init__(self, gib):
        self.torch = report.torch_prepared(deterministic=self.deterministic)
        self.make(self.torch, int(gib * GIB))

    def wait(self):
        self.torch.cuda.synchronize()

    def tell(self):
        report.tell_torch_memory(self.torch, self.reads, self.writes)
        report.tell_digest(report.checksum(self.torch, each) for each in self.results())


class Stencil(Torch):
    """Computes the mean of two neighbours in each column, from one array into another. The next iteration does the same
    in the other direction."""

    def make(self, torch, size):
        width = 1 << 14
        shape = (size // 2 // 4 // width, width)
        self.arrays = [torch.randn(shape, device="cuda", generator=generator(torch)), torch.zeros(shape, device="cuda")]
        self.reads = self.writes = size // 2

    def step(self):
        before, after = self.arrays
        self.torch.lerp(before[:-2], before[2:], 0.5, out=after[1:-1])
        self.arrays = [after, before]

    def results(self):
        return self.arrays


class SparseProduct(Torch):
    """cuSPARSE: multiplies each of several sparse matrices (blocks) by the same vector, and adds the products."""
    deterministic = False  # the order of additions may differ, but all sums are whole numbers below 2^24
    ROWS, EACH = 1 << 23, 16  # ROWS: rows of a block, and length of the vector; EACH: numbers in a row

    def make(self, torch, size):
        count, apart = self.ROWS * self.EACH, self.ROWS // self.EACH
        random, self.blocks = generator(torch), []
        bases = torch.arange(0, self.ROWS, apart, device="cuda", dtype=torch.int32)  # a row's columns ascend
        starts = torch.arange(0, count + 1, self.EACH, device="cuda", dtype=torch.int32)
        for _ in range(max(1, size // (8 * count))):
            columns = torch.empty(count, device="cuda", dtype=torch.int32).random_(0, apart, generator=random)
            columns.view(-1, self.EACH).add_(bases)
            values = torch.empty(count, device="cuda").random_(0, 4, generator=random)
            self.blocks.append(torch.sparse_csr_tensor(starts, columns, values, (self.ROWS, self.ROWS)))
        self.vector = torch.empty(self.ROWS, device="cuda").random_(0, 256, generator=random)
        self.writes = 0

    def step(self):
        total = self.torch.zeros_like(self.vector)
        for block in self.blocks:
            total += self.torch.mv(block, self.vector)
        self.vector = self.torch.remainder(total, 256)

    def results(self):
        return [self.vector]


class Fourier(Torch):
    """cuFFT: many arrays, each with many transforms of a million points."""
    POINTS = 1 << 20

    def make(self, torch, size):
        shape, random = (PART // 8 // self.POINTS, self.POINTS), generator(torch)
        count = max(1, (size - 2 * PART) // PART)  # leaves room for two arrays: work area and output
        self.arrays = [torch.randn(shape, device="cuda", dtype=torch.complex64, generator=random) for _ in range(count)]
        self.reads = self.writes = count * PART

    def step(self):
        for array in self.arrays:
            array.copy_(self.torch.fft.fft(array, norm="ortho"))

    def results(self):
        return self.arrays


class WholeFourier(Torch):
    """cuFFT: one transform of a large matrix in both dimensions, so that each kernel touches most of the memory."""

    def make(self, torch, size):
        rows = 1 << 14
        columns = smooth(size // 3 // 8 // rows)  # a third each: matrix, transformed matrix, cuFFT's work area
        self.matrix = torch.randn(rows, columns, device="cuda", dtype=torch.complex64, generator=generator(torch))

    def step(self):
        self.matrix = self.torch.fft.fft2(self.matrix, norm="ortho")

    def results(self):
        return [self.matrix]


class HashTable(Torch):
    """Adds to random entries of a large table and reads random entries: the worst case for memory that is away."""
    deterministic = False  # whole numbers are added, in any order
    KEYS = 1 << 22

    def make(self, torch, size):
        self.table = torch.zeros(size // 8, device="cuda", dtype=torch.int64)
        self.random = generator(torch)
        self.found = torch.zeros((), device="cuda", dtype=torch.int64)
        self.reads, self.writes = 2 * self.KEYS * 8, self.KEYS * 8

    def keys(self):
        return self.torch.randint(0, self.table.numel(), (self.KEYS,), device="cuda", generator=self.random)

    def step(self):
        keys = self.keys()
        self.table.index_add_(0, keys, keys % 1000 + 1)
        self.found += self.table[self.keys()].sum()

    def results(self):
        return [self.table, self.found]


class Graph(Torch):
    """Captures a training step with a few large layers as a CUDA graph. Each iteration replays the graph."""
    WIDTH, ROWS = 8192, 1024

    def make(self, torch, size):
        depth = max(1, size // (4 * 4 * self.WIDTH**2))  # parameters, gradients and two moments
        import network
        self.model = network.Mlp(self.WIDTH, depth, device="cuda", dtype=torch.float32)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4, fused=True, capturable=True)
        self.given = torch.zeros(self.ROWS, self.WIDTH, device="cuda")
        self.random = generator(torch)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self.train()
        torch.cuda.current_stream().wait_stream(side)
        self.optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # frees unused memory, since the graph has memory of its own
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.train()

    def train(self):
        self.optimizer.zero_grad(set_to_none=True)
        self.model(self.given, self.given).backward()
        self.optimizer.step()

    def step(self):
        self.given.normal_(0, 1, generator=self.random)
        self.graph.replay()

    def results(self):
        return list(self.model.parameters())


class CuPy:
    """Runs an elementwise kernel in CuPy, in place on one array."""

    def __init__(self, gib):
        import cupy
        self.cupy = cupy
        self.array = cupy.empty(int(gib * GIB) // 4, dtype=cupy.uint32)
        cupy.ElementwiseKernel("", "uint32 x", "x = (unsigned int)i", "number")(self.array)
        self.kernel = cupy.ElementwiseKernel("", "uint32 x", "x = x * 1664525u + 1013904223u", "advance")

    def step(self):
        self.kernel(self.array)

    def wait(self):
        self.cupy.cuda.get_current_stream().synchronize()

    def tell(self):
        cupy, pool = self.cupy, self.cupy.get_default_memory_pool()
        report.tell_memory(pool.used_bytes(), pool.total_bytes())
        sums = []
        for begin in range(0, self.array.size, report.WORDS):
            part = self.array[begin:begin + report.WORDS].astype(cupy.uint64)
            places = cupy.arange(1, 2 * part.size + 1, 2, dtype=cupy.uint64)
            sums.append(int((part * places).sum()))
        report.tell_digest(sums)


class Jax:
    """Trains an MLP in JAX, with momentum instead of Adam."""
    WIDTH, ROWS = 8192, 1024

    def __init__(self, gib):
        # XLA must not choose algorithms by timing them, or the last bits of the results differ.
        os.environ["XLA_FLAGS"] = "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0"
        os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.95")
        import jax
        import jax.numpy as jnp
        import numpy
        self.jax, self.numpy = jax, numpy
        jax.config.update("jax_default_matmul_precision", "highest")
        depth = max(1, int(gib * GIB) // (3 * 4 * self.WIDTH**2))  # parameters, gradients and the momentum
        self.key, *keys = jax.random.split(jax.random.PRNGKey(1), depth + 1)
        shape = (self.WIDTH, self.WIDTH)
        make = jax.jit(lambda key: jax.random.normal(key, shape) * self.WIDTH**-0.5)
        self.weights, self.momenta = [make(key) for key in keys], [jnp.zeros(shape) for _ in keys]

        def loss(weights, x):
            y = x
            for weight in weights:
                y = y + 0.1 * jax.nn.gelu(y @ weight)
            return jnp.mean((y - x) ** 2)

        def train(weights, momenta, key):
            key, fresh = jax.random.split(key)
            value, slopes = jax.value_and_grad(loss)(weights, jax.random.normal(fresh, (self.ROWS, self.WIDTH)))
            momenta = [0.9 * momentum + slope for momentum, slope in zip(momenta, slopes)]
            return [weight - 0.1 * momentum for weight, momentum in zip(weights, momenta)], momenta, key, value

        self.train, self.losses = jax.jit(train, donate_argnums=(0, 1)), []

    def step(self):
        self.weights, self.momenta, self.key, value = self.train(self.weights, self.momenta, self.key)
        self.losses.append(value)

    def wait(self):
        self.jax.block_until_ready((self.weights, self.momenta, self.losses))

    def tell(self):
        told = self.jax.devices()[0].memory_stats()
        held = told.get("peak_pool_bytes", told["peak_bytes_in_use"])
        report.tell_memory(told["peak_bytes_in_use"], held)
        sums = [float(loss).hex() for loss in self.losses]
        for array in [*self.weights, *self.momenta]:
            words = self.numpy.asarray(array).view(self.numpy.uint32).ravel()
            places = self.numpy.arange(1, 2 * words.size + 1, 2, dtype=self.numpy.uint64)
            sums.append(int((words * places).sum()))
        report.tell_digest(sums)


KINDS = {"stencil": Stencil, "spmv": SparseProduct, "fft": Fourier, "fft-whole": WholeFourier, "hash": HashTable,
         "graph": Graph, "cupy": CuPy, "jax": Jax}

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--kind", choices=sorted(KINDS), required=True)
parser.add_argument("--gib", type=float, default=18)
parser.add_argument("--steps", type=int, default=6)
parser.add_argument("--warm-up", type=int, default=3, help="iterations that are not timed; default %(default)s")


def main():
    options = parser.parse_args()
    try:
        work = KINDS[options.kind](options.gib)
    except ModuleNotFoundError as missing:
        print(f"skipped {missing.name} is not installed", flush=True)
        return 0
    report.timed(work.step, work.wait, options.warm_up, options.steps)
    work.tell()
    return 0


if __name__ == "__main__":
    sys.exit(main())
