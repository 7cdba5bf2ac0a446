# SPDX-License-Identifier: Apache-2.0
"""Reports to sharedgpu whether a program has met a deadline.

    with sharedgpu_deadline.deadline():
        output = model(frame)
        torch.cuda.synchronize()

Does nothing unless the program was started by `sharedgpu run --deadline`, or in a job with `--sharedgpu-deadline`.
Never blocks: a report that cannot be written at once is dropped. Needs only Python 3.6.
"""
import contextlib
import os
import stat
import time


def _fd():
    """The pipe for reports, or None. The inherited descriptor number may belong to another file now. So the file must
    be a pipe with the inode number in SHAREDGPU_DEADLINE_READ ("FD:INODE")."""
    try:
        fd = int(os.environ["SHAREDGPU_DEADLINE_FD"])
        inode = int(os.environ["SHAREDGPU_DEADLINE_READ"].split(":")[1])
        info = os.fstat(fd)
    except (KeyError, ValueError, IndexError, OverflowError, OSError):
        return None
    return fd if stat.S_ISFIFO(info.st_mode) and info.st_ino == inode else None


def tell(met):
    """Reports that the program has met or missed a deadline. Returns True if the report was written."""
    fd = _fd()
    if fd is None:
        return False
    try:
        os.write(fd, b"met\n" if met else b"missed\n")
    except OSError:  # the pipe is full, or its read end is closed (Python ignores SIGPIPE)
        return False
    return True


@contextlib.contextmanager
def deadline(seconds=None):
    """Reports whether the block took at most `seconds` (default: the deadline of the run or job). If the block raises
    an exception, it has missed the deadline.

    GPU work counts only if the block waits for it."""
    if seconds is None:
        seconds = float(os.environ.get("SHAREDGPU_DEADLINE") or "inf")
    begun = time.monotonic()
    try:
        yield
    except BaseException:
        tell(False)
        raise
    tell(time.monotonic() - begun <= seconds)
