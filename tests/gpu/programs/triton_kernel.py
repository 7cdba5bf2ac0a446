#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A kernel written in Triton and launched by Triton."""
import torch
import triton
import triton.language as tl

from ballast import options, result
from pytorch import Ballast

chosen = options(["softmax"])


@triton.jit
def softmax(out, data, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(data + row * columns + at, mask=at < columns, other=-float("inf"))
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(out + row * columns + at, x / tl.sum(x, axis=0), mask=at < columns)


torch.manual_seed(1)
ballast = Ballast(chosen.gib)
x = torch.randn(8192, 4000, device="cuda")
for step in range(chosen.steps * 4):
    y = torch.empty_like(x)
    softmax[(x.shape[0],)](y, x, x.shape[1], BLOCK=4096)
    x = y * 4000
result("softmax", x.cpu().numpy().tobytes())
ballast.check()
