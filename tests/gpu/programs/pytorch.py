#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Typical work of PyTorch programs, done deterministically. Each case prints the same results as on plain CUDA."""
import os
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
ALLOCATOR = {"expandable": "expandable_segments:True", "async": "backend:cudaMallocAsync"}
if len(sys.argv) > 1 and sys.argv[1] in ALLOCATOR:  # PyTorch reads the variable when it is imported
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = os.environ["PYTORCH_ALLOC_CONF"] = ALLOCATOR[sys.argv[1]]

import torch
import torch.nn as nn

from ballast import note, options, result

WORDS = 1 << 27  # number of int32 values in a block of ballast: 512 MiB


class Ballast:
    """Memory that exists during the whole case, and must have its initial contents at the end."""

    def __init__(self, gib):
        self.blocks = [
            torch.arange(i, i + WORDS, dtype=torch.int32, device="cuda").mul_(0x9E3779B)
            for i in range(int(gib * 2))
        ]

    def check(self):
        for i, block in enumerate(self.blocks):
            expected = torch.arange(i, i + WORDS, dtype=torch.int32, device="cuda").mul_(0x9E3779B)
            assert torch.equal(block, expected), f"ballast {i} has changed"
        result("ballast", len(self.blocks))


def state_of(model):
    return b"".join(p.detach().float().cpu().numpy().tobytes() for p in model.parameters())


def network(width=2048, depth=4):
    layers = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width)]
    return nn.Sequential(*layers).cuda()


def train(model, steps, amp=False, width=2048, batch=512):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    for step in range(steps):
        x = torch.randn(batch, width, device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=amp):
            loss = (model(x).float() - x).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            result(f"loss {step}", loss.item().hex())


def eager(steps):
    model = network()
    train(model, steps)
    result("weights", state_of(model))
    statistics = torch.cuda.memory_stats()
    free, total = torch.cuda.mem_get_info()
    reserved = statistics["reserved_bytes.all.current"]
    assert 0 < statistics["allocated_bytes.all.current"] <= reserved <= total, statistics
    assert 0 <= free <= total, (free, total)
    assert total == torch.cuda.get_device_properties(0).total_memory
    note(f"reserved {reserved >> 20} MiB, free {free >> 20} of {total >> 20} MiB")


def amp(steps):
    model = network()
    train(model, steps, amp=True)
    result("weights", state_of(model))


def compiled(steps):
    model = network()
    train(torch.compile(model), steps)
    result("weights", state_of(model))


def reduce_overhead(steps):
    model = network().eval()
    step = torch.compile(model, mode="reduce-overhead")  # CUDA graphs, in private memory pools
    x = torch.randn(512, 2048, device="cuda")
    with torch.no_grad():
        for _ in range(steps):
            torch.compiler.cudagraph_mark_step_begin()
            x = step(x).clone() * 0.5 + x * 0.5
    result("output", x.cpu().numpy().tobytes())


def graphs(steps):
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, capturable=True)
    static = torch.randn(512, 2048, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            (model(static) - static).square().mean().backward()
            optimizer.step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = (model(static) - static).square().mean()
        loss.backward()
        optimizer.step()
    for step in range(steps):
        static.copy_(torch.randn(512, 2048, device="cuda"))
        graph.replay()
        if step % 10 == 0:
            result(f"loss {step}", loss.item().hex())
    result("weights", state_of(model))


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        return torch.full((2048,), float(index % 97) / 97)


def loader(steps):
    batches = iter(torch.utils.data.DataLoader(Numbers(), batch_size=512, num_workers=2, pin_memory=True,
                                               multiprocessing_context="fork"))
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(steps):
        x = next(batches).cuda(non_blocking=True)
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            result(f"loss {step}", loss.item().hex())


def expandable(steps):
    held = []
    for step in range(steps):  # segments grow and shrink
        held.append(torch.full((1 << 22, 1 + step % 5), float(step), device="cuda"))
        if len(held) == 20:
            result(f"sum {step}", sum(float(t.sum(dtype=torch.float64)) for t in held).hex())
            held = held[::3]
            torch.cuda.empty_cache()
    eager(steps)


def allocated_async(steps):
    assert torch.cuda.get_allocator_backend() == "cudaMallocAsync"
    expandable(steps)


def streams(steps):
    lanes = [torch.cuda.Stream() for _ in range(4)]
    data = [torch.randn(2048, 2048, device="cuda") / 64 for _ in lanes]
    torch.cuda.synchronize()
    for step in range(steps):
        for i, lane in enumerate(lanes):
            with torch.cuda.stream(lane):
                data[i] = torch.tanh(data[i] @ data[i])
        if step % 10 == 9:  # all streams wait for each other
            events = [lane.record_event() for lane in lanes]
            for lane in lanes:
                for event in events:
                    lane.wait_event(event)
            data = data[1:] + data[:1]
    torch.cuda.synchronize()
    for i, block in enumerate(data):
        result(f"stream {i}", block.cpu().numpy().tobytes())


class Language(nn.Module):
    def __init__(self, words=4096, width=1024, heads=16, depth=6):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens):
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
        return self.head(self.body(self.embed(tokens), mask=mask, is_causal=True))


def language(steps):
    model = Language().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):  # the deterministic backend
        for step in range(steps):
            tokens = torch.randint(0, 4096, (8, 257), device="cuda")
            with torch.autocast("cuda", dtype=torch.bfloat16):
                logits = model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                result(f"loss {step}", loss.item().hex())
        model.eval()
        tokens = torch.zeros(2, 1, dtype=torch.long, device="cuda")
        with torch.no_grad():
            for _ in range(48):
                tokens = torch.cat([tokens, model(tokens)[:, -1:].argmax(-1)], dim=1)
    result("generated", tokens.cpu().numpy().tobytes())


def child(queue, done, steps):
    """Runs in a child process, and works on memory of the parent process."""
    block = queue.get()
    for _ in range(steps):
        block.mul_(3).add_(1)
    torch.cuda.synchronize()
    done.set()
    del block


def spawned(steps):
    spawn = torch.multiprocessing.get_context("spawn")
    queue, done = spawn.Queue(), spawn.Event()
    process = spawn.Process(target=child, args=(queue, done, steps))
    process.start()
    block = torch.arange(1 << 22, dtype=torch.int32, device="cuda")
    torch.multiprocessing.reductions.reduce_tensor(block)  # CUDA IPC: raises an error here, not in the queue's thread
    queue.put(block)
    while not done.wait(1):
        assert process.is_alive(), "the child has failed"
    result("shared", block.cpu().numpy().tobytes())
    process.join()
    result("child", process.exitcode)
    train(network(), steps)


CASES = {
    "eager": eager, "amp": amp, "compile": compiled, "reduce-overhead": reduce_overhead, "graphs": graphs,
    "loader": loader, "expandable": expandable, "async": allocated_async, "streams": streams,
    "language": language, "spawn": spawned,
}

if __name__ == "__main__":
    chosen = options(CASES)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(1)
    ballast = Ballast(chosen.gib)
    CASES[chosen.case](chosen.steps)
    ballast.check()
