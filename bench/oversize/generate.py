#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generates tokens from a decoder-only transformer with random bf16 weights and a cache of keys and values, one sequence at
a time. Prints the lines that report.py describes; an iteration is a token. Each token reads all weights once, and
changes none."""
import argparse

import report

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--gib", type=float, default=18, help="of the weights; default %(default)s")
parser.add_argument("--width", type=int, default=4096)
parser.add_argument("--prompt", type=int, default=128, help="tokens of the prompt; default %(default)s")
parser.add_argument("--steps", type=int, default=10, help="tokens to generate and time")
parser.add_argument("--warm-up", type=int, default=4, help="tokens that are generated before; default %(default)s")


def main():
    options = parser.parse_args()
    torch = report.torch_prepared()
    import network

    depth = network.depth_of("transformer", options.width, options.gib * 2**30, torch.bfloat16)
    with torch.inference_mode():
        model = network.Transformer(options.width, depth, device="cuda", dtype=torch.bfloat16).eval()
        most = options.prompt + options.warm_up + options.steps
        shape = (2, 1, options.width // network.HEAD, most, network.HEAD)
        caches = [torch.zeros(shape, device="cuda", dtype=torch.bfloat16) for _ in model.blocks]
        generator = torch.Generator(device="cuda").manual_seed(2)
        tokens = torch.randint(0, network.WORDS, (1, options.prompt), device="cuda", generator=generator)
        place, said, last = 0, [], None

        def step():
            nonlocal tokens, place, last
            x = model.before(tokens)
            for block, cache in zip(model.blocks, caches):
                x = block(x, cache, place)
            place += tokens.shape[1]
            last = model.logits(x[:, -1:])
            tokens = last.argmax(-1)
            said.append(tokens)

        step()  # processes the prompt
        report.timed(step, torch.cuda.synchronize, options.warm_up - 1, options.steps)
        report.tell_torch_memory(torch, writes=0)
        report.tell("tokens", " ".join(str(each.item()) for each in said))
        report.tell_digest(report.checksum(torch, each) for each in [*said, last, *caches])


if __name__ == "__main__":
    main()
