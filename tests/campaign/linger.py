# SPDX-License-Identifier: Apache-2.0
"""A hostile program. It sends to the arbiter descriptors whose closing takes ten seconds: TCP sockets with SO_LINGER
and data that nobody reads. If the Linux kernel refuses to pass such descriptors (Linux 6.16 and later), the program
continues to send them, and counts the attempts.

linger.py SOCKET CONNECTIONS SECONDS UID
"""
import array
import contextlib
import os
import resource
import signal
import socket
import struct
import sys
import threading
import time


def lingering(listener):
    """Returns a socket whose last close takes long, and the socket at the other end of the connection."""
    one = socket.create_connection(listener.getsockname())
    other, _ = listener.accept()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 10))
    one.setblocking(False)
    try:
        while one.send(b"x" * 65536):
            pass
    except BlockingIOError:
        return one, other


def main():
    path, connections, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one, other = lingering(listener)  # called once before setuid(), since only root may be able to read modules that
                                      # Python loads here
    one.close()
    other.close()
    os.setuid(int(sys.argv[4]))
    kept, sent, refused = [], 0, 0
    end = time.monotonic() + seconds
    terminated = []
    signal.signal(signal.SIGTERM, lambda *_: terminated.append(True))
    while not terminated and time.monotonic() < end:
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        peer.setblocking(False)
        try:
            peer.connect(path)
            one, other = lingering(listener)
            with contextlib.suppress(PermissionError):  # the Linux kernel refuses to pass the descriptor
                peer.sendmsg([b"\0" * 16], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [one.fileno()]))])
            # Closes the socket in another thread: this close takes long if the arbiter has closed its copy before.
            threading.Thread(target=one.close, daemon=True).start()
            kept.append((peer, other))
            sent += 1
            if sent == 1:
                print("linger: has begun", flush=True)
        except OSError:
            refused += 1
            time.sleep(0.01)
        if len(kept) > connections:
            kept.pop(0)
    # Prints the same line as tests/programs/flood.
    print(f"linger: {sent} connections, {sent} messages, 0 answers, turned away {refused} times", flush=True)
    os._exit(0)  # does not wait for threads that are closing sockets


main()
