# SPDX-License-Identifier: Apache-2.0
"""For a program to tell sharedgpu whether it has met a deadline.

    with sharedgpu_deadline.deadline():
        output = model(frame)
        torch.cuda.synchronize()

Nothing happens where the program is not under `sharedgpu run --deadline`, and nothing ever waits: what cannot be told
at once is dropped. Needs nothing but Python 3.6.
"""
import contextlib
import os
import stat
import time


def _fd():
    """The pipe to tell it to, or None. A number that was inherited may be another file's by now, so the file must be the
    one of which SHAREDGPU_DEADLINE_READ ("FD:INODE") has the other end."""
    try:
        fd = int(os.environ["SHAREDGPU_DEADLINE_FD"])
        inode = int(os.environ["SHAREDGPU_DEADLINE_READ"].split(":")[1])
        info = os.fstat(fd)
    except (KeyError, ValueError, IndexError, OverflowError, OSError):
        return None
    return fd if stat.S_ISFIFO(info.st_mode) and info.st_ino == inode else None


def tell(met):
    """Tells that a deadline was met or missed. Returns whether anybody was told."""
    fd = _fd()
    if fd is None:
        return False
    try:
        os.write(fd, b"met\n" if met else b"missed\n")
    except OSError:  # it is full, or nobody has the other end any more: Python ignores SIGPIPE
        return False
    return True


@contextlib.contextmanager
def deadline(seconds=None):
    """Tells whether the block took at most `seconds`, by default what `--deadline` said. A block that raises has missed.

    The GPU's work counts as far as the block waits for it."""
    if seconds is None:
        seconds = float(os.environ.get("SHAREDGPU_DEADLINE") or "inf")
    begun = time.monotonic()
    try:
        yield
    except BaseException:
        tell(False)
        raise
    tell(time.monotonic() - begun <= seconds)
