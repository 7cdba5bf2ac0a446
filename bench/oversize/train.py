#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a transformer or a wide MLP with Adam, deterministically. Prints the lines that report.py describes.

Parameters, gradients and both moments take 4 times --params-gib (5 times with --adam foreach, which has temporaries);
activations come in addition. The time of a step grows with --batch, but the amount of memory that must cross the bus
hardly grows.
"""
import argparse

import report

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
report.add_training_options(parser, ("fp32", "bf16", "mixed"), "mixed: fp32 parameters, bf16 products; default %(default)s")
parser.add_argument("--adam", choices=("foreach", "fused", "loop"), default="fused")


def main():
    options = parser.parse_args()
    torch = report.torch_prepared(options.seed)
    import network

    dtype = torch.bfloat16 if options.precision == "bf16" else torch.float32
    width = options.width or {"mlp": 8192, "transformer": 2048}[options.model]
    depth = network.depth_of(options.model, width, options.params_gib * 2**30, dtype)
    model = network.NETWORKS[options.model](width, depth, device="cuda", dtype=dtype)
    ways = {"foreach": {"foreach": True}, "fused": {"fused": True}, "loop": {"foreach": False}}
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, **ways[options.adam])
    batches = network.Batches(options.model, width, options.batch, options.length, dtype)
    losses = []
    phases = report.Phases(torch, ("gradients", "optimizer"))

    def step():
        with phases.next():
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=options.precision == "mixed"):
                loss = model(*batches.next())
            loss.backward()
        with phases.next():
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.detach())

    report.timed(step, torch.cuda.synchronize, options.warm_up, options.steps)
    report.tell_torch_memory(torch)
    parameters = sum(p.numel() * p.element_size() for p in model.parameters())
    moments = sum(each.numel() * each.element_size() for p in model.parameters() for each in optimizer.state[p].values())
    phases.tell(options.steps, (2 * parameters, 2 * parameters + moments))
    report.tell("parameters", sum(p.numel() for p in model.parameters()))
    report.tell("losses", " ".join(f"{loss.item():.6g}" for loss in losses))
    tensors = [*losses, *model.parameters()]
    tensors += [each for p in model.parameters() for each in optimizer.state[p].values()]
    report.tell_digest(report.checksum(torch, each) for each in tensors)


if __name__ == "__main__":
    main()
