#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the output of `sharedgpu ledger` and `sharedgpu report` for a ledger and accounts defined here.

  rows.py SHAREDGPU
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

BOOTED = 1_795_305_600  # 2026-11-22T00:00:00 UTC
SECOND = 1_000_000_000
GPUS = ["0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"]
BATCH = 4294967291

# Each entry: the time in seconds since the boot, and the rest of the line.
LEDGER = [
    (0, f"boot 8de26f41-1aca-4c64-aa60-1b67c44ca8e3 {BOOTED * SECOND}"),
    (1, "tenant 1 0 job 17"),
    (1, "options 1 0 2 0 0 0 0 0 0 1"),
    (1, "class 1 long high 0 15 2"),
    (2, f"session 1 1 17 {BATCH} 100 200"),
    (2, "session 2 1 17 0 101 201 0"),
    (3, f"attach 1 {GPUS[0]}"),
    (3, f"attach 2 {GPUS[1]}"),
    (4, f"grant 1 1 {GPUS[0]} 17 {BATCH}"),
    (4.5, f"grant 1 1 {GPUS[1]} 17 0"),
    (6.25, f"release 1 1 {GPUS[0]} 17 {BATCH}"),
    (6.25, f"release 1 1 {GPUS[1]} 17 0"),
    (6.5, f"used 1 17 {BATCH} 1048576 2097152 250000000 5000000 1 3145728 2097152 1"),
    (7, "tenant 2 4000000000 run 131415161718191a1b1c1d1e1f202122"),
    (7, "session 3 2 0 0 102 202"),
    (7, f"attach 3 {GPUS[0]}"),
    (8, f"grant 2 2 {GPUS[0]} 0 0"),
    (9, f"release 2 2 {GPUS[0]} 0 0"),
    (9.5, "group 2 8589934592"),
    (9.5, "used 2 0 0 0 0 0 0 0 3145728 2097152 1 4294967296"),
    (10, "gone 3"),
    (10, "end 2"),
    (11, f"grant 3 1 {GPUS[0]} 17 {BATCH}"),
    (12, "seen"),
]

SACCT = """\
7|alice|physics|main|2026-11-22T12:47:12|3600|billing=1,cpu=1,gres/sharedgpu=4,mem=4G,node=1|||1||
7.batch||physics||2026-11-22T12:47:12|3600|cpu=1,gres/sharedgpu=4|cpu=00:00:02,gres/sharedgpu_lease=900,gres/sharedgpu_swap=768|gres/sharedgpu_lease=360,gres/sharedgpu_swap=256|1||
8|bob|chemistry|gpu|2026-11-23T12:48:00|7200|billing=2,cpu=2,gres/sharedgpu=2,mem=8G,node=1|||1||
8.0||chemistry||2026-11-23T12:48:00|7200|cpu=2,gres/sharedgpu=2|gres/sharedgpu_lease=7200,gres/sharedgpu_swap=0|gres/sharedgpu_lease=0,gres/sharedgpu_swap=0|1||
9|carol|"a", b|gpu|2026-11-23T12:48:00|10|gres/sharedgpu=1|||1||
"""


def crc32c(data: bytes) -> int:
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def line(seconds: float, text: str) -> str:
    body = f" {int(seconds * SECOND)} {text}"
    return f"{crc32c(body.encode()):08x}{body}\n"


def write_sacct(path: pathlib.Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\ntr '|' '\\037' <<'END'\n{text}END\n", errors="surrogateescape")
    path.chmod(0o755)


def main(sharedgpu: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        ledger, conf, sacct = folder / "ledger", folder / "conf", folder / "sacct"
        ledger.write_text("".join(line(*record) for record in LEDGER))
        conf.write_text(f"StateDir={folder}\n")
        write_sacct(sacct, SACCT)
        environment = os.environ | {"TZ": "UTC", "PATH": f"{folder}:{os.environ['PATH']}"}
        print("# SPDX-License-Identifier: Apache-2.0")
        print("# Made by rows.py; tests/golden says how to write it again.")
        for words in (
            *(f"ledger --by {by} --format {form}" for by in ("turn", "step", "tenant") for form in ("csv", "json")),
            "ledger --job 17 --since 2026-11-22T00:00:05 --until 2026-11-22T00:00:06 --format csv",
            "report --since 2026-11-01 --until 2026-12-01 --format csv",
            "report --since 2026-11-01 --until 2026-12-01 --units-per-gpu 4 --format json",
        ):
            print(f"\n$ sharedgpu {words}", flush=True)
            command = [sharedgpu, *words.split(), "--config", str(conf)]
            if words.startswith("ledger"):
                command.append(str(ledger))
            subprocess.run(command, env=environment, check=True)
        # A name that is not UTF-8 does not prevent other names from being shown.
        write_sacct(sacct, SACCT.replace("carol", "j\udcfcrgen"))
        report = [sharedgpu, "report", "--config", str(conf), "--since", "2026-11-01", "--until", "2026-12-01", "--json"]
        rows = json.loads(subprocess.run(report, env=environment, check=True, stdout=subprocess.PIPE).stdout)
        assert "j\ufffdrgen" in [row["user"] for row in rows], rows


main(sys.argv[1])
