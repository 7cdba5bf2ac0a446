#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CuPy with one of its allocators: elementwise kernels, cuBLAS, cuFFT, cuSPARSE, cuSOLVER, a graph."""
import cupy
import cupyx.scipy.sparse
import numpy

from ballast import options, result

ALLOCATORS = {
    "pool": lambda: cupy.cuda.MemoryPool().malloc,
    "none": lambda: None,  # cudaMalloc and cudaFree for each allocation
    "async": lambda: cupy.cuda.MemoryAsyncPool().malloc,
}
chosen = options(ALLOCATORS)
cupy.cuda.set_allocator(ALLOCATORS[chosen.case]())
words = 1 << 27
blocks = [cupy.arange(i, i + words, dtype=cupy.int32) for i in range(int(chosen.gib * 2))]

generator = numpy.random.default_rng(1)
a = cupy.asarray(generator.standard_normal((1024, 1024)))
signal = cupy.asarray(generator.standard_normal(1 << 20))
sparse = cupyx.scipy.sparse.random(4096, 4096, density=0.01, format="csr", dtype=numpy.float64,
                                   random_state=cupy.random.RandomState(1))
vector = cupy.asarray(generator.standard_normal(4096))
total = numpy.zeros(4)
for step in range(chosen.steps):
    spectrum = cupy.fft.irfft(cupy.fft.rfft(signal) * (1 + 1e-6 * step), n=signal.size)
    vector = sparse @ vector
    vector /= cupy.abs(vector).max()
    product = cupy.tanh(a @ a / 1024)
    if step % 10 == 0:
        solution = cupy.linalg.solve(a, product[:, :8])
        singular = cupy.linalg.svd(a[:128, :128], compute_uv=False)
        total = numpy.array([float(spectrum[7]), float(vector[11]), float(solution[3, 3]), float(singular[0])])
        # cuSPARSE and cuSOLVER may add in a different order each time, so only ten digits of the results are compared.
        result(f"step {step}", " ".join(f"{value:.9e}" for value in total))
stream = cupy.cuda.Stream(non_blocking=True)
with stream:
    x = cupy.ones(1 << 20)
    stream.begin_capture()
    for _ in range(10):
        x *= 1.5
        x -= 0.25
    graph = stream.end_capture()
    for _ in range(chosen.steps):
        x.fill(1)
        graph.launch(stream)
    stream.synchronize()
result("graph", cupy.asnumpy(x).tobytes())
for i, block in enumerate(blocks):
    assert bool((block == cupy.arange(i, i + words, dtype=cupy.int32)).all()), f"ballast {i}"
result("ballast", len(blocks))
