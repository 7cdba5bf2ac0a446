# SPDX-License-Identifier: Apache-2.0
"""Runs programs side by side, on plain CUDA or as tenants of a separate arbiter, and reads their output."""
import contextlib
import datetime
import json
import os
import re
import signal
import subprocess
import sys
import time


class Failed(Exception):
    pass


def until(true, seconds, what):
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise Failed(f"{what}: did not happen within {seconds:.0f} s")
        time.sleep(0.02)


class Program:
    """A program in its own process group, so that kill() also ends its children."""

    def __init__(self, command, environment, folder, number, cores):
        self.out, self.err = folder / f"{number}.out", folder / f"{number}.err"
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=out, stderr=err,
                                            start_new_session=True,
                                            preexec_fn=lambda: os.sched_setaffinity(0, cores))

    def ready(self):
        if self.ended():
            raise Failed("the program ended before it was ready")
        return self.out.read_bytes().startswith(b"ready\n")

    def go(self):
        self.process.stdin.write(b"go\n")
        self.process.stdin.close()

    def ended(self):
        self.failed()
        return self.process.poll() is not None

    def failed(self):
        if self.process.poll():
            lines = self.err.read_text(errors="replace").strip().splitlines()[-5:]
            raise Failed(f"exit status {self.process.returncode}: " + " / ".join(lines))

    def said(self):
        evicted = evictions(self.err.read_text(errors="replace"))
        return json.loads(self.out.read_text().splitlines()[-1]) | {"evictions": evicted}

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def share_of_cores(number, shares):
    """The cores of job `number` if each of `shares` jobs has its own cores, as under a batch system."""
    cores = sorted(os.sched_getaffinity(0))
    each = max(1, len(cores) // shares)
    return {cores[(number * each + i) % len(cores)] for i in range(each)}


def side_by_side(commands, environment, folder, seconds, shares):
    """Runs the commands, each on its share of the cores. All begin their work at the same time, when each has a CUDA
    context. Returns the JSON object that each command printed last, with its evictions. Fails if a command fails, or if
    the commands have not ended `seconds` after they began to work."""
    programs = []
    try:
        for number, command in enumerate(commands):
            programs.append(Program(command, environment, folder, number, share_of_cores(number, shares)))
        until(lambda: all([p.ready() for p in programs]), 180, "ready")
        for program in programs:
            program.go()
        until(lambda: all([p.ended() for p in programs]), seconds, "the end")
        return [program.said() for program in programs]
    finally:
        for program in programs:
            program.kill()


def touch_host_memory(size):
    """Touches `size` bytes of host memory once, in eight processes. A virtual machine gets some of its memory only at
    first use, at half a second per GiB, and this time must not be measured."""
    populate = "import mmap, sys; mmap.mmap(-1, int(sys.argv[1]), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)"
    for process in [subprocess.Popen([sys.executable, "-c", populate, str(size // 8)]) for _ in range(8)]:
        process.wait()


@contextlib.contextmanager
def arbiter(tools, environment, folder, settings):
    """Runs an arbiter with these settings. Its socket, state and debug log are in `folder`, and each other setting has
    its default. Yields the environment of its tenants."""
    config, socket = folder / "conf", folder / "socket"
    lines = {"Socket": socket, "StateDir": folder / "state", "LogLevel": "debug", "LogFile": folder / "log"} | settings
    config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    process = subprocess.Popen([tools["sharedgpud"], "--config", config], env=environment, start_new_session=True)
    try:
        until(lambda: socket.exists() or process.poll() is not None, 30, "the arbiter's socket")
        if process.poll() is not None:
            raise Failed(f"the arbiter ended with status {process.returncode}")
        yield environment | {"SHAREDGPU_SOCKET": str(socket), "SHAREDGPU_DEBUG": "1"}
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def evictions(told):
    """The seconds of each eviction and the MiB that it copied, found unchanged and found uniform, from the output of a
    tenant with SHAREDGPU_DEBUG=1."""
    return [{"seconds": float(ms) / 1e3, "copied": int(copied), "unchanged": int(unchanged), "uniform": int(uniform)}
            for ms, copied, unchanged, uniform in
            re.findall(r"evicted in ([\d.]+) ms, in MiB: (\d+) copied, (\d+) unchanged, (\d+) uniform", told)]


def entries(log):
    """(pid, seconds) for each lease that follows a release by another tenant: the pid of the lease's tenant, and the time
    from the last such release to the lease."""
    pids, displaced_at, found = {}, {}, []
    for line in log.splitlines():
        match = re.match(r"(\S+) sharedgpud: debug: (.+?)(?:, pid (\d+): came$|: (lease on|released) )", line)
        if not match:
            continue
        at = datetime.datetime.fromisoformat(match[1]).timestamp()
        tenant = match[2]
        if match[3]:
            pids[tenant] = int(match[3])
        elif match[4] == "released":
            # From this point on, memory of the other tenants may be restored, and memory of this tenant evicted.
            for other in pids:
                if other != tenant:
                    displaced_at[other] = at
        elif tenant in displaced_at:
            found.append((pids.get(tenant), at - displaced_at.pop(tenant)))
    return found
