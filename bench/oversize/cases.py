# SPDX-License-Identifier: Apache-2.0
"""The measured programs as data. The arguments give all programs about the same footprint. The memory limit of a
measurement is computed from the program's footprint on plain CUDA."""
from dataclasses import dataclass

# The footprint divided by the size of the parameters. The footprint contains parameters, gradients and two moments (4
# in all), temporaries of Adam, and activations.
PARTS = {"mlp": 4.4, "mlp-compute": 6.3, "mlp-foreach": 5.4, "transformer": 7.2, "transformer-fp32": 8.6}
WAYS = ("fsdp", "save-on-cpu", "streamed", "streamed-cpu")  # of answers.py


@dataclass(frozen=True)
class Case:
    name: str
    group: str
    program: str
    arguments: tuple[str, ...]
    size: str  # the option that takes the size in GiB
    part: float = 1.0  # the size in the option, as a fraction of the footprint
    answers: bool = False  # the network is also trained in the ways of answers.py

    def command(self, gib):
        return [self.program, *self.arguments, self.size, f"{gib * self.part:.3f}"]

    def answer(self, way, gib, limit):
        """The command for the same training in a way of answers.py, with a memory limit in bytes."""
        size = [self.size, f"{gib * self.part:.3f}"]
        return ["answers.py", "--way", way, "--limit-gib", f"{limit / 2**30:.3f}", *self.arguments, *size]


def training(name, arguments, answers=False):
    return Case(name, "training", "train.py", tuple(arguments.split()), "--params-gib", 1 / PARTS[name], answers)


def kind(name):
    return Case(name, "other programs", "kinds.py", ("--kind", name), "--gib")


CASES = (
    # With `mlp`, a step's copies take about as long as its computation. `mlp-compute` computes several times longer, since
    # a batch has eight times as many rows.
    training("mlp", "--model mlp --batch 1024", answers=True),
    training("mlp-compute", "--model mlp --batch 8192"),
    training("mlp-foreach", "--model mlp --batch 1024 --adam foreach"),
    training("transformer", "--model transformer --precision bf16 --batch 8", answers=True),
    training("transformer-fp32", "--model transformer --precision fp32 --batch 8"),
    Case("generate", "generation", "generate.py", (), "--gib", 0.97),
    *map(kind, ("stencil", "spmv", "fft", "fft-whole", "hash", "graph", "cupy", "jax")),
)
