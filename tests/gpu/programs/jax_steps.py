#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs JAX deterministically, with its memory allocated beforehand or on demand."""
import os
import sys

# XLA must not choose algorithms by timing them, or the last bits of the results differ.
os.environ["XLA_FLAGS"] = "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0"
preallocate = len(sys.argv) > 1 and sys.argv[1] == "preallocate"
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "true" if preallocate else "false"
os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.6" if preallocate else "0.95")

import jax
import jax.numpy as jnp
import numpy as np

from ballast import options, result

chosen = options(["preallocate", "on-demand"])
words = 1 << 27
blocks = [jnp.arange(i, i + words, dtype=jnp.int32) * 40503 for i in range(int(chosen.gib * 2))]
keys = jax.random.split(jax.random.PRNGKey(1), 5)
weights = [jax.random.normal(key, (2048, 2048)) / 45 for key in keys[:4]]


def loss(weights, x):
    y = x
    for w in weights:
        y = jnp.tanh(y @ w)
    return jnp.mean((y - x) ** 2)


@jax.jit
def step(weights, key):
    key, fresh = jax.random.split(key)
    value, gradient = jax.value_and_grad(loss)(weights, jax.random.normal(fresh, (512, 2048)))
    return [w - 0.1 * g for w, g in zip(weights, gradient)], key, value


key = keys[4]
for i in range(chosen.steps):
    weights, key, value = step(weights, key)
    if i % 10 == 0:
        result(f"loss {i}", float(value).hex())
result("weights", b"".join(np.asarray(w).tobytes() for w in weights))
for i, block in enumerate(blocks):
    assert bool(jnp.array_equal(block, jnp.arange(i, i + words, dtype=jnp.int32) * 40503)), f"ballast {i}"
result("ballast", len(blocks))
