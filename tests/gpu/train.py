#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a wide MLP with Adam, deterministically, and prints every loss bit for bit.

The weights, gradients and both moments take 4 x LAYERS x WIDTH^2 x 4 bytes: 16 GiB with the defaults, and about
21 GiB with activations and temporaries. Two runs with the same arguments print the same lines on the same GPU
model, even if their memory was moved during the run.
"""
import argparse
import os
import struct
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--width", type=int, default=16384)
parser.add_argument("--batch", type=int, default=1024)
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--seed", type=int, default=1)
options = parser.parse_args()

torch.use_deterministic_algorithms(True)
torch.manual_seed(options.seed)
device = torch.device("cuda")
start = time.monotonic()
layers = []
for _ in range(options.layers):
    layers += [torch.nn.Linear(options.width, options.width, bias=False, device=device), torch.nn.GELU()]
model = torch.nn.Sequential(*layers)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, foreach=False)
generator = torch.Generator(device=device).manual_seed(options.seed)
for step in range(options.steps):
    x = torch.randn(options.batch, options.width, device=device, generator=generator)
    loss = (model(x) - x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    value = loss.item()
    print(f"loss {step} {struct.pack('>f', value).hex()} {value:.9g}", flush=True)
digest = sum(int(p.detach().view(torch.int32).sum(dtype=torch.int64).item()) for p in model.parameters())
print(f"weights {digest & (2**64 - 1):016x}")
free, total = torch.cuda.mem_get_info()
print(f"# reserved {torch.cuda.max_memory_reserved()} bytes, total {total / 2**30:.2f} GiB, "
      f"{time.monotonic() - start:.1f} s", flush=True)
