#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the networks of train.py under a memory limit of PyTorch's allocator, without sharedgpu. Each way is one that
programs or frameworks use for networks larger than the GPU. Prints the lines that report.py describes.

  plain         nothing special: all memory of the training must fit
  fsdp          fully_shard with CPUOffloadPolicy in one process; parameters and Adam are on the CPU
  save-on-cpu   torch.autograd.graph.save_on_cpu: tensors saved for the backward pass wait in host memory
  streamed      hand-written: the blocks are copied to the GPU one after the other, in the backward pass with their
                moments; Adam runs on the GPU while the next block is copied in and the previous block is copied out. As
                many blocks as fit stay on the GPU
  streamed-cpu  hand-written: like streamed, but the gradients are copied to the host, and Adam runs on the CPU

A training that does not fit prints `skipped` and the reason, with exit status 0.
"""
import argparse
import contextlib
import sys

import report

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--way", choices=("plain", "fsdp", "save-on-cpu", "streamed", "streamed-cpu"), required=True)
parser.add_argument("--limit-gib", type=float, help="limit on PyTorch's memory on the GPU; default: none")
report.add_training_options(parser, ("fp32", "bf16"), "default %(default)s")
parser.add_argument("--resident", type=int, help="ways streamed: blocks that stay on the GPU; default: as many as fit")

options = parser.parse_args()
torch = report.torch_prepared(options.seed)
import network  # noqa: E402

RATE = 1e-4


class Whole:
    """The network and Adam as PyTorch implements them. Subclasses keep parts of the training in other places."""

    def __init__(self, make, batches):
        self.batches, self.losses = batches, []
        self.model = make()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=RATE, fused=True)

    def forward(self):
        return self.model(*self.batches.next())

    def step(self):
        loss = self.forward()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.losses.append(loss.detach())

    def parameters(self):
        return list(self.model.parameters())


class SaveOnCpu(Whole):
    def forward(self):
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            return super().forward()


class Sharded(Whole):
    def __init__(self, make, batches):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

        torch.distributed.init_process_group("cuda:nccl,cpu:gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
        mesh, policy = init_device_mesh("cuda", (1,)), CPUOffloadPolicy(pin_memory=True)
        self.batches, self.losses, self.optimizer = batches, [], None
        self.model = make(home="cpu")
        for block in self.model.blocks:
            fully_shard(block, mesh=mesh, offload_policy=policy)
        fully_shard(self.model, mesh=mesh, offload_policy=policy)

    def step(self):
        loss = self.forward()
        loss.backward()
        torch.cuda.synchronize()  # the gradients have arrived in host memory
        if self.optimizer is None:  # made here, since the backward pass above moves the parameters for the last time
            self.local = self.parameters()
            self.optimizer = torch.optim.Adam(self.local, lr=RATE, fused=True)
        for local, parameter in zip(self.local, self.model.parameters()):
            local.grad = parameter.grad.to_local()
        self.optimizer.step()
        for local, parameter in zip(self.local, self.model.parameters()):
            local.grad = parameter.grad = None
        self.losses.append(loss.detach())

    def parameters(self):
        """The parameters of the only process, and so the whole of each parameter."""
        return [parameter.detach().to_local() for parameter in self.model.parameters()]


def adam(weights, first, second, slope, count, spare):
    """A step of Adam, in the order of torch.optim.Adam's loop over parameters. `spare` is a temporary of the same size
    as the other tensors."""
    first.lerp_(slope, 1 - 0.9)
    second.mul_(0.999).addcmul_(slope, slope, value=1 - 0.999)
    torch.sqrt(second, out=spare)
    spare.div_((1 - 0.999**count) ** 0.5).add_(1e-8)
    weights.addcdiv_(first, spare, value=-RATE / (1 - 0.9**count))


class Slot:
    """Memory on the GPU for one block: its parameters, its parameters and both moments, or its gradient. CUDA events order
    the copies into and out of it."""

    def __init__(self, numbers, rows, dtype):
        self.state = torch.empty(rows, numbers, device="cuda", dtype=dtype)
        self.filled, self.used, self.emptied = torch.cuda.Event(), torch.cuda.Event(), torch.cuda.Event()


class Streamed:
    """A hand-written loop over blocks, with three slots on the GPU: one block is computed while the next block is copied in
    and the previous block is copied out. The activations stay on the GPU."""
    SLOTS = 3
    on_cpu = False

    def __init__(self, make, batches):
        self.batches, self.losses, self.count = batches, [], 0
        self.model = make(blocks=1)
        self.template = self.model.blocks[0]
        self.shapes = [(name, p.shape, p.numel()) for name, p in self.template.named_parameters()]
        self.numbers = sum(count for _, _, count in self.shapes)
        self.dtype = next(self.template.parameters()).dtype
        self.rows = 1 if self.on_cpu else 3
        self.around = [p for name, p in self.model.named_parameters() if not name.startswith("blocks.")]
        self.around_optimizer = torch.optim.Adam(self.around, lr=RATE, foreach=False) if self.around else None
        self.come, self.leave = torch.cuda.Stream(), torch.cuda.Stream()
        self.slots = [Slot(self.numbers, self.rows, self.dtype) for _ in range(self.SLOTS)]
        self.slopes = [Slot(self.numbers, 1, self.dtype) for _ in range(2)]
        self.spare = torch.empty(self.numbers, device="cuda", dtype=self.dtype)
        self.turn = 0
        self.host, self.returned, self.resident = {}, {}, {}
        self.fill()
        self.template.to("meta")  # only its code is needed after this

    def fill(self):
        """Makes the blocks: the last ones on the GPU, as many as fit, and the others in pinned host memory."""
        keep = options.resident if options.resident is not None else self.room()
        for number in range(options.depth):
            block = self.template if number == 0 else self.model.block(options.width, device="cuda", dtype=self.dtype)
            flat = torch.cat([p.detach().reshape(-1) for p in block.parameters()])
            if number >= options.depth - keep:
                self.resident[number] = Slot(self.numbers, 3, self.dtype)
                self.resident[number].state.zero_()[0].copy_(flat)
                continue
            self.host[number] = torch.zeros(self.rows, self.numbers, dtype=self.dtype, pin_memory=True)
            self.host[number][0].copy_(flat)
            self.returned[number] = torch.cuda.Event()
            if self.on_cpu:
                self.host[number].grad = torch.zeros(self.rows, self.numbers, dtype=self.dtype, pin_memory=True)
        self.host_optimizer = torch.optim.Adam(self.host.values(), lr=RATE, fused=True) if self.on_cpu and self.host else None
        report.tell("resident", f"{keep} of {options.depth} blocks")

    def room(self):
        """The number of blocks that fit on the GPU beside the slots and a step's activations; all blocks if there is no
        limit. Runs one block to measure the activations."""
        if options.limit_gib is None:
            return options.depth
        held = torch.cuda.memory_allocated
        torch.cuda.synchronize()
        before = held()
        torch.cuda.reset_peak_memory_stats()
        given, wanted = self.batches.next()
        x = self.model.before(given).detach().requires_grad_()
        first = held()
        y = self.template(x)
        kept = held() - first
        self.model.after(y, wanted).backward()
        passing = torch.cuda.max_memory_allocated() - before - kept
        self.model.zero_grad(set_to_none=True)
        self.batches.restart()
        del x, y
        torch.cuda.empty_cache()
        weights = self.numbers * self.spare.element_size()
        moments = 2 * sum(p.numel() * p.element_size() for p in self.around)
        left = 0.95 * options.limit_gib * 2**30 - before - moments - options.depth * kept - passing - 2 * weights
        return max(0, min(options.depth, int(left // (3 * weights))))

    def views(self, flat):
        """The parameters of a block, as views of the flat row. Each is a leaf of the autograd graph."""
        found, begin = {}, 0
        for name, shape, count in self.shapes:
            found[name] = flat[begin:begin + count].view(shape).detach().requires_grad_()
            begin += count
        return found

    def fetch(self, number, rows):
        """Begins to copy a block into a slot: the first `rows` rows of its state. Returns the slot. A block that stays on
        the GPU has a slot of its own, and is not copied."""
        if number in self.resident:
            return self.resident[number]
        slot = self.slots[self.turn % len(self.slots)]
        self.turn += 1
        rows = min(rows, self.rows)
        with torch.cuda.stream(self.come):
            for event in (slot.used, slot.emptied, self.returned[number]):
                self.come.wait_event(event)
            slot.state[:rows].copy_(self.host[number][:rows], non_blocking=True)
            slot.filled.record()
        return slot

    @contextlib.contextmanager
    def weights_by_place(self, number, slot):
        """Within this context, autograd saves the offsets of the block's weights instead of the weights. In the
        backward pass, autograd reads the weights at these offsets in the slot that holds the block at that time."""
        storage = slot.state.untyped_storage().data_ptr()

        def pack(tensor):
            if tensor.untyped_storage().data_ptr() != storage:
                return tensor
            return tensor.storage_offset(), tensor.size(), tensor.stride()

        def unpack(packed):
            if isinstance(packed, torch.Tensor):
                return packed
            offset, size, stride = packed
            return self.holder[number].state.as_strided(size, stride, offset)

        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            yield

    def step(self):
        self.count += 1
        given, wanted = self.batches.next()
        first = self.model.before(given)
        last, graphs = self.forward(first)
        coming = self.fetch(options.depth - 1, 3)
        loss = self.model.after(last, wanted)
        loss.backward()
        down = self.backward(last.grad, graphs, coming)
        if self.around_optimizer:
            first.backward(down)
            self.around_optimizer.step()
            self.around_optimizer.zero_grad(set_to_none=True)
        if self.host_optimizer:
            torch.cuda.synchronize()  # the gradients have arrived in host memory
            self.host_optimizer.step()
        self.losses.append(loss.detach())

    def forward(self, first):
        """Returns the last block's output, and for each block its input, its weights and its output."""
        work, graphs, self.holder = torch.cuda.current_stream(), [], {}
        x, coming = first, self.fetch(0, 1)
        for number in range(options.depth):
            slot, coming = coming, self.fetch(number + 1, 1) if number + 1 < options.depth else None
            work.wait_event(slot.filled)
            views = self.views(slot.state[0])
            x = x.detach().requires_grad_()
            with self.weights_by_place(number, slot):
                y = torch.func.functional_call(self.template, views, (x,))
            slot.used.record()
            graphs.append((x, list(views.values()), y))
            x = y
        return x.detach().requires_grad_(), graphs

    def backward(self, down, graphs, coming):
        """Computes the gradient of each block. If Adam runs on the GPU, or the block stays there, updates the block. If the
        block does not stay on the GPU, begins to copy it to the host; if Adam runs on the CPU, copies only the gradient.
        Returns the first input's gradient."""
        work = torch.cuda.current_stream()
        for number in reversed(range(options.depth)):
            slot, coming = coming, self.fetch(number - 1, 3) if number else None
            slope = self.slopes[number % 2]
            work.wait_event(slot.filled)
            work.wait_event(slope.emptied)
            self.holder[number] = slot
            x, weights, y = graphs.pop()
            down, *parts = torch.autograd.grad(y, [x, *weights], down)
            del x, weights, y
            torch.cat([part.reshape(-1) for part in parts], out=slope.state[0])
            del parts
            self.finish(number, slot, slope)
        return down

    def finish(self, number, slot, slope):
        stays = number in self.resident
        if stays or not self.on_cpu:
            adam(*slot.state, slope.state[0], self.count, self.spare)
        slot.used.record()
        if stays:
            return
        with torch.cuda.stream(self.leave):
            self.leave.wait_event(slot.used)
            if self.on_cpu:
                self.host[number].grad.copy_(slope.state, non_blocking=True)
                slope.emptied.record()
            else:
                self.host[number].copy_(slot.state, non_blocking=True)
                slot.emptied.record()
            self.returned[number].record()

    def parameters(self):
        torch.cuda.synchronize()
        return self.around + [(self.resident[n].state if n in self.resident else self.host[n])[0]
                              for n in range(options.depth)]


class StreamedCpu(Streamed):
    on_cpu = True


WAYS = {"plain": Whole, "fsdp": Sharded, "save-on-cpu": SaveOnCpu, "streamed": Streamed, "streamed-cpu": StreamedCpu}


def main():
    dtype = torch.bfloat16 if options.precision == "bf16" else torch.float32
    options.width = options.width or {"mlp": 8192, "transformer": 2048}[options.model]
    options.depth = network.depth_of(options.model, options.width, options.params_gib * 2**30, dtype)
    if options.limit_gib is not None:
        torch.cuda.set_per_process_memory_fraction(min(1.0, options.limit_gib * 2**30 / torch.cuda.mem_get_info()[1]))

    def make(blocks=options.depth, home=None):
        return network.NETWORKS[options.model](options.width, blocks, device="cuda", dtype=dtype, home=home)

    try:
        training = WAYS[options.way](make, network.Batches(options.model, options.width, options.batch, options.length, dtype))
        report.timed(training.step, torch.cuda.synchronize, options.warm_up, options.steps)
    except torch.OutOfMemoryError as error:
        print(f"skipped does not fit: {str(error).splitlines()[0]}", flush=True)
        return 0
    report.tell_torch_memory(torch)
    report.tell("losses", " ".join(f"{loss.item():.6g}" for loss in training.losses))
    report.tell_digest(report.checksum(torch, each) for each in [*training.losses, *training.parameters()])
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
