# SPDX-License-Identifier: Apache-2.0
# The simulated node of a campaign, with an arbiter, simulated GPUs and tenants; and the list of the faults found.
#
# A campaign runs in its own namespaces of mounts and pids, with its own /dev/shm (isolate()). So nothing is left when
# the campaign ends, even if it is killed, and all files in /dev/shm belong to the campaign.
import contextlib
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BUILD_DIR", ROOT / "build")).resolve()
PROGRAMS = BUILD / "tests" / "programs"
DAEMON = BUILD / "arbiter" / "sharedgpud"
COMMAND = BUILD / "arbiter" / "sharedgpu"


def isolate():
    """Runs the script again in new namespaces of mounts and pids. Needs root."""
    if os.environ.get("SHAREDGPU_CAMPAIGN") == "1":
        subprocess.run(["mount", "-t", "tmpfs", "none", "/dev/shm"], check=True)
        return
    if os.getuid() != 0:
        sys.exit(f"{sys.argv[0]}: needs root, for namespaces of its own")
    os.environ["SHAREDGPU_CAMPAIGN"] = "1"
    for name in ("SHAREDGPU_TOKEN", "LD_PRELOAD", "CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID"):
        os.environ.pop(name, None)
    os.execvp("unshare", ["unshare", "--mount", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc",
                          sys.executable, *sys.argv])


def say(text):
    print(text, file=sys.stderr, flush=True)


class Findings:
    """The rows of a campaign: action, count, and faults found."""

    def __init__(self):
        self.rows = []

    def row(self, what, count, found=()):
        found = [text for text in found if text]
        self.rows.append((what, count, found))

    def end(self):
        """Prints the rows and returns the exit status."""
        for what, count, found in self.rows:
            more = f" (and {len(found) - 3} more)" if len(found) > 3 else ""
            print(what, count, ("; ".join(found[:3]) + more) if found else "nothing", sep="\t", flush=True)
        return 1 if any(found for _, _, found in self.rows) else 0


class Node:
    def __init__(self, gpus=1, memory="64MiB", lines=(), simulated=None):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="sharedgpu-campaign."))
        self.folder.chmod(0o755)
        self.state = self.folder / "state"
        self.state.mkdir(mode=0o700)
        self.gpus = gpus
        self.device = "/dev/shm/device"
        self.socket = self.folder / "socket"
        self.config = self.folder / "conf"
        self.config.write_text("\n".join([f"Socket={self.socket}", f"StateDir={self.state}", *lines]) + "\n")
        self.environment = dict(
            os.environ, SHAREDGPU_SOCKET=str(self.socket), LD_LIBRARY_PATH=str(BUILD / "tests" / "simgpu"),
            SIMGPU_STATE=self.device, SIMGPU_DEVICES=str(gpus), SIMGPU_MEMORY=memory, SIMGPU_CONTEXT="1MiB",
            SIMGPU_FORBID_CONFLICTS="1", **(simulated or {}))
        self.arbiter = None

    # ---- the arbiter ----

    def start(self):
        with open(self.folder / "arbiter.log", "ab") as log:
            self.arbiter = subprocess.Popen([DAEMON, "--config", self.config], env=self.environment, stdout=log,
                                            stderr=log, stdin=subprocess.DEVNULL)

    def answers(self, seconds=30):
        """Waits until the arbiter answers. Returns False if it does not answer within `seconds`."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.status() is not None:
                return True
            time.sleep(0.05)
        return False

    def signal(self, number):
        self.arbiter.send_signal(number)

    def kill(self):
        self.arbiter.kill()
        self.arbiter.wait()

    def status(self):
        asked = self.run(COMMAND, "status", "--json", timeout=20)
        return json.loads(asked.stdout) if asked.returncode == 0 else None

    def run(self, *words, timeout=60):
        try:
            return subprocess.run(words, env=self.environment, capture_output=True, text=True, timeout=timeout,
                                  check=False)
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(words, 124, "", "no answer in time")

    def ledger(self, *options):
        rows = self.run(COMMAND, "ledger", "--config", self.config, "--format", "json", *options)
        return json.loads(rows.stdout) if rows.returncode == 0 else None

    # ---- what the arbiter uses ----

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.arbiter.pid}/fd"))

    def lasting_descriptors(self):
        """Counts the arbiter's descriptors several times, and returns the smallest count, since a survey or the end of
        a connection needs some descriptors for a moment. Leaves out the descriptors of the last answers to `sharedgpu
        status`, at most eight."""
        def look():
            folder = f"/proc/{self.arbiter.pid}/fd"
            targets = []
            for name in os.listdir(folder):
                with contextlib.suppress(FileNotFoundError):
                    targets.append(os.readlink(f"{folder}/{name}"))
            return sum("memfd:sharedgpu-status" not in target for target in targets)

        fewest = look()
        for _ in range(5):
            time.sleep(0.2)
            fewest = min(fewest, look())
        return fewest

    def resident(self):
        """The arbiter's resident memory in bytes: its own memory and shared pages."""
        for line in open(f"/proc/{self.arbiter.pid}/status"):
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) << 10
        return 0

    def processor_seconds(self):
        fields = open(f"/proc/{self.arbiter.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def limit_descriptors(self, most):
        """Sets the arbiter's limit, and returns the earlier limits."""
        before = resource.prlimit(self.arbiter.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(self.arbiter.pid, resource.RLIMIT_NOFILE, (most, before[1]))
        return before

    # ---- tenants ----

    def tenant(self, program, *arguments, log="/dev/null", nice=0, user=None):
        """Starts a test program as a tenant. The returned process is the process of the tenant."""
        def prepare():
            os.nice(nice)
            if user is not None:
                os.setuid(user)
        with open(log, "wb") as out:
            return subprocess.Popen([COMMAND, "run", "--", PROGRAMS / program, *map(str, arguments)],
                                    env=self.environment, stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                                    preexec_fn=prepare)

    def used(self):
        """Returns the bytes of device memory in use on each GPU."""
        states = [self.device] + [f"{self.device}.{i}" for i in range(1, self.gpus)]
        used = []
        for state in states:
            info = self.run(BUILD / "tests" / "simgpu" / "simgpu-info", state).stdout
            used += [int(line.split()[1]) for line in info.splitlines() if line.startswith("used")]
        return used

    def left_in_shm(self):
        """Returns the names of all files in /dev/shm except those of the simulated devices."""
        return [name for name in os.listdir("/dev/shm") if not name.startswith("device")]

    def close(self, keep=False):
        if self.arbiter is not None and self.arbiter.poll() is None:
            self.arbiter.send_signal(signal.SIGCONT)
            self.arbiter.terminate()
            self.arbiter.wait()
        if keep:
            say(f"logs: {self.folder}")
        else:
            shutil.rmtree(self.folder, ignore_errors=True)
