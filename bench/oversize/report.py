# SPDX-License-Identifier: Apache-2.0
"""The common parts of this folder's programs: settings that make PyTorch deterministic, the times of iterations, and
the output lines that `measure` reads. Each line has a name and a value:

  time SECONDS        the time of one iteration after the warm-up; one line for each
  median SECONDS      the median of these times
  allocated BYTES     the maximum size of all tensors of the framework at one time
  reserved BYTES      the maximum device memory that the framework had: the footprint
  reads, writes BYTES the least that an iteration must read and write of this memory, each byte counted once
  phase NAME SECONDS BYTES   a part of an iteration: its median time on the GPU, and the least memory that it must touch
  digest HEX          digest of the results; runs with the same arguments on the same GPU model print the same digest
"""
import contextlib
import hashlib
import os
import statistics
import time

WORDS = 1 << 24  # number of words in each part of the computation of a checksum


def tell(name, value):
    print(f"{name} {value}", flush=True)


def torch_prepared(seed=1, deterministic=True):
    """Imports PyTorch with settings under which equal programs have equal results, bit for bit."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch
    import torch.utils.deterministic

    torch.manual_seed(seed)
    torch.set_float32_matmul_precision("highest")  # no TF32
    torch.use_deterministic_algorithms(deterministic)
    torch.utils.deterministic.fill_uninitialized_memory = False  # filling would touch more memory than needed
    return torch


def add_training_options(parser, precisions, precision_help):
    """Adds the common options of the programs that train the networks of network.py."""
    parser.add_argument("--model", choices=("transformer", "mlp"), default="mlp")
    parser.add_argument("--params-gib", type=float, default=4)
    parser.add_argument("--width", type=int, help="default: 8192 (mlp), 2048 (transformer)")
    parser.add_argument("--batch", type=int, default=1024,
                        help="rows (mlp), or sequences (transformer); default %(default)s")
    parser.add_argument("--length", type=int, default=512, help="tokens of a sequence; default %(default)s")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--warm-up", type=int, default=3, help="steps that are not timed; default %(default)s")
    parser.add_argument("--precision", choices=precisions, default="fp32", help=precision_help)
    parser.add_argument("--seed", type=int, default=1)


def timed(step, wait, warm_up, steps):
    """Runs the iterations, and waits after each timed iteration for the GPU. Prints the times except those of the
    warm-up."""
    for _ in range(warm_up):
        step()
    wait()
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        step()
        wait()
        times.append(time.perf_counter() - begin)
        tell("time", f"{times[-1]:.6f}")
    if times:
        tell("median", f"{statistics.median(times):.6f}")


class Phases:
    """Times the phases of iterations on the GPU. Each iteration enters the context next() once for each phase, in the
    order of `names`."""

    def __init__(self, torch, names):
        self.torch, self.names, self.events = torch, names, []

    @contextlib.contextmanager
    def next(self):
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        yield
        end.record()
        self.events.append((begin, end))

    def tell(self, iterations, touched):
        """Prints the phases of the last `iterations`. `touched`: bytes that each phase must touch."""
        self.torch.cuda.synchronize()
        for number, (name, size) in enumerate(zip(self.names, touched)):
            pairs = self.events[number::len(self.names)][-iterations:]
            if pairs:
                seconds = statistics.median(begin.elapsed_time(end) for begin, end in pairs) / 1000
                tell("phase", f"{name} {seconds:.6f} {int(size)}")


def tell_memory(allocated, reserved, reads=None, writes=None):
    """Prints the memory figures. By default, an iteration reads and writes all of `reserved`."""
    tell("allocated", int(allocated))
    tell("reserved", int(reserved))
    tell("reads", int(reserved if reads is None else reads))
    tell("writes", int(reserved if writes is None else writes))


def tell_torch_memory(torch, reads=None, writes=None):
    tell_memory(torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), reads, writes)


def checksum(torch, tensor):
    """The sum modulo 2^64 of the tensor's words, each multiplied by a factor that depends on its position: the sum also
    changes if words change places. It is computed on the tensor's device, a part at a time, and so needs little
    memory."""
    tensor = tensor.detach()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    whole = tensor.numel() * tensor.element_size() % 4 == 0
    words = tensor.contiguous().view(-1).view(torch.int32 if whole else torch.uint8)
    total = torch.zeros((), dtype=torch.int64, device=words.device)
    for begin in range(0, words.numel(), WORDS):
        part = words[begin:begin + WORDS].to(torch.int64)
        part *= torch.arange(2 * begin + 1, 2 * (begin + part.numel()) + 1, 2, dtype=torch.int64, device=part.device)
        total += part.sum()
    return total.item() & (2**64 - 1)


def tell_digest(checksums):
    """Prints the digest of these numbers, in their order."""
    tell("digest", hashlib.sha256(" ".join(map(str, checksums)).encode()).hexdigest()[:32])
