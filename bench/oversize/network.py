# SPDX-License-Identifier: Apache-2.0
"""The networks of train.py, answers.py and generate.py. Each consists of equal blocks, with a part before and a part after
them, so that a program can also run it block by block."""
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

WORDS = 8192  # size of the transformers' vocabulary
HEAD = 128  # width of an attention head


def linear(inputs, outputs, **where):
    """Makes a layer with random weights. Writes each weight only once."""
    layer = nn.Linear(inputs, outputs, bias=False, device="meta", dtype=where["dtype"]).to_empty(device=where["device"])
    nn.init.normal_(layer.weight, 0, inputs**-0.5)
    return layer


class Dense(nn.Module):
    """A residual layer of the MLP: values neither explode nor vanish in many layers."""

    def __init__(self, width, **where):
        super().__init__()
        self.inner = linear(width, width, **where)

    def forward(self, x):
        return x + 0.1 * nn.functional.gelu(self.inner(x))


class Block(nn.Module):
    """A block of a decoder-only transformer. If there is a cache (keys, values), `x` has the tokens from position
    `place` on."""

    def __init__(self, width, **where):
        super().__init__()
        self.heads = width // HEAD
        self.attend, self.project = linear(width, 3 * width, **where), linear(width, width, **where)
        self.up, self.down = linear(width, 4 * width, **where), linear(4 * width, width, **where)
        self.first, self.second = nn.LayerNorm(width, **where), nn.LayerNorm(width, **where)

    def forward(self, x, cache=None, place=0):
        batch, length, width = x.shape
        parts = self.attend(self.first(x)).view(batch, length, 3, self.heads, HEAD).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind()
        if cache is not None:
            cache[0][:, :, place:place + length] = key
            cache[1][:, :, place:place + length] = value
            key, value = (each[:, :, :place + length] for each in cache)
        # Flash attention is deterministic if PyTorch's deterministic algorithms are on, but does not support fp32.
        backend = SDPBackend.MATH if query.dtype == torch.float32 else SDPBackend.FLASH_ATTENTION
        with sdpa_kernel(backend):
            mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=length > 1)
        x = x + self.project(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.second(x))))


class Mlp(nn.Module):
    """Learns to return its input. Each block is made on `device`, and then moved to `home` if that is another
    device."""
    block = Dense

    def __init__(self, width, depth, device, dtype, home=None):
        super().__init__()
        where = {"device": device, "dtype": dtype}
        self.make_around(width, home or device, where)
        self.blocks = nn.ModuleList(self.block(width, **where).to(home or device) for _ in range(depth))

    def make_around(self, width, home, where):
        """Makes the parts before and after the blocks."""

    def before(self, x):
        return x

    def after(self, x, wanted):
        return (x.float() - wanted.float()).square().mean()

    def forward(self, given, wanted):
        x = self.before(given)
        for block in self.blocks:
            x = block(x)
        return self.after(x, wanted)


class Transformer(Mlp):
    """Learns to predict tokens. `forward` returns the loss, and `logits` the logits of the token after each position."""
    block = Block

    def make_around(self, width, home, where):
        self.embed = nn.Embedding(WORDS, width, **where).to(home)
        self.norm, self.head = nn.LayerNorm(width, **where).to(home), linear(width, WORDS, **where).to(home)

    def before(self, tokens):
        return self.embed(tokens)

    def after(self, x, wanted):
        return nn.functional.cross_entropy(self.logits(x).float().flatten(0, 1), wanted.flatten())

    def logits(self, x):
        return self.head(self.norm(x))


NETWORKS = {"mlp": Mlp, "transformer": Transformer}
NUMBERS = {"mlp": 1, "transformer": 12}  # number of parameters of a block, divided by the square of the width


def depth_of(model, width, size, dtype):
    """The number of blocks for which all parameters of the network, including the parts before and after the blocks,
    take about `size` bytes."""
    each = torch.empty((), dtype=dtype).element_size()
    around = 2 * WORDS * width * each if model == "transformer" else 0
    return max(1, round((size - around) / (NUMBERS[model] * width * width * each)))


class Batches:
    """The same random batches in each run: (given, wanted)."""

    def __init__(self, model, width, batch, length, dtype):
        self.generator = torch.Generator(device="cuda")
        self.restart()
        self.model, self.shape, self.dtype = model, (batch, width) if model == "mlp" else (batch, length + 1), dtype

    def restart(self):
        self.generator.manual_seed(2)

    def next(self):
        if self.model == "mlp":
            x = torch.randn(self.shape, device="cuda", dtype=self.dtype, generator=self.generator)
            return x, x
        tokens = torch.randint(0, WORDS, self.shape, device="cuda", generator=self.generator)
        return tokens[:, :-1], tokens[:, 1:]
