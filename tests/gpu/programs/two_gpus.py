#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two GPUs in one job: NCCL with a process for each, or one process that uses both."""
import os

# NVLink multicast is switched off: this program does not test it, and not every host has the NVLink fabric that
# multicast needs.
os.environ["NCCL_NVLS_ENABLE"] = "0"
import torch
import torch.distributed as dist

from ballast import options, result

WORDS = 1 << 27


def ballast_on(device, gib):
    return [torch.arange(i, i + WORDS, dtype=torch.int32, device=device) for i in range(int(gib * 2))]


def verify(blocks):
    for i, block in enumerate(blocks):
        assert torch.equal(block, torch.arange(i, i + WORDS, dtype=torch.int32, device=block.device)), f"ballast {i}"


def rank(number, chosen, port):
    torch.cuda.set_device(number)
    dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=number, world_size=2)
    blocks = ballast_on("cuda", chosen.gib)
    data = torch.arange(1 << 24, dtype=torch.float32, device="cuda") % 1024 + number
    for step in range(chosen.steps * 4):
        dist.all_reduce(data)
        data = data % 1021
        gathered = [torch.empty(1 << 18, device="cuda") for _ in range(2)]
        dist.all_gather(gathered, data[: 1 << 18].contiguous())
        if step % 40 == 0 and number == 0:
            result(f"step {step}", float(data.sum(dtype=torch.float64) + gathered[1].sum(dtype=torch.float64)).hex())
    verify(blocks)
    dist.barrier()
    if number == 0:
        result("data", data.cpu().numpy().tobytes())
    dist.destroy_process_group()


def graph_rank(number, chosen, port):
    """Captures collective operations once and replays them; kernels of the rank run before and after each operation."""
    torch.cuda.set_device(number)
    dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=number, world_size=2)
    blocks = ballast_on("cuda", chosen.gib)
    data = torch.arange(1 << 24, dtype=torch.float32, device="cuda") % 1024 + number

    def step():
        data.mul_(0.5)
        dist.all_reduce(data)
        data.remainder_(1021)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(4):
            step()
    for replay in range(chosen.steps * 4):
        graph.replay()
        if replay % 40 == 0 and number == 0:
            result(f"replay {replay}", float(data.sum(dtype=torch.float64)).hex())
    verify(blocks)
    dist.barrier()
    if number == 0:
        result("data", data.cpu().numpy().tobytes())
    torch.cuda.synchronize()
    del graph
    dist.destroy_process_group()


def spawn(target, chosen):
    port = 20000 + os.getpid() % 20000
    torch.multiprocessing.spawn(target, args=(chosen, port), nprocs=2)
    result("ranks", 2)


def nccl(chosen):
    spawn(rank, chosen)


def nccl_graph(chosen):
    spawn(graph_rank, chosen)


def one_process(chosen):
    assert torch.cuda.can_device_access_peer(0, 1)
    blocks = [ballast_on("cuda:0", chosen.gib), ballast_on("cuda:1", chosen.gib)]
    torch.manual_seed(1)
    a = torch.randn(2048, 2048, device="cuda:0") / 64
    for step in range(chosen.steps * 100):  # a step takes about half a millisecond
        b = a.to("cuda:1", non_blocking=True)
        b = torch.tanh(b @ b)
        a = b.to("cuda:0")
        if step % 1000 == 0:
            result(f"step {step}", float(a.sum(dtype=torch.float64)).hex())
    for each in blocks:
        verify(each)
    result("a", a.cpu().numpy().tobytes())


if __name__ == "__main__":
    cases = {"nccl": nccl, "nccl-graph": nccl_graph, "one-process": one_process}
    chosen = options(cases)
    cases[chosen.case](chosen)
