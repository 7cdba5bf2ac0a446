# SPDX-License-Identifier: Apache-2.0
"""Shared parts of the test programs: their options, and the printing of lines that must be the same on plain CUDA."""
import argparse
import hashlib
import os


def options(cases):
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=sorted(cases))
    parser.add_argument("--gib", type=float, default=4, help="ballast: device memory that is kept and verified")
    parser.add_argument("--steps", type=int, default=100)
    return parser.parse_args()


def result(name, data):
    """Prints a line that the run on plain CUDA must print too; `data` is bytes, a number or a text."""
    if isinstance(data, (bytes, bytearray, memoryview)):
        data = hashlib.sha256(data).hexdigest()[:32]
    print(f"result {name} {data}", flush=True)


def note(text):
    """Prints a line that may differ from run to run."""
    print(f"# {text}", flush=True)


def shared():
    return "libsharedgpu" in os.environ.get("LD_PRELOAD", "")
