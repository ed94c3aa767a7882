"""The conformance fixture over stdio, without delay: hands its pipes to a server that already runs, and waits.

Importing the SDK takes a second, which is long for a process that is started for every session.
"""

import socket
import sys


def main():
    with socket.socket(socket.AF_UNIX) as warm:
        warm.connect(sys.argv[1])
        socket.send_fds(warm, [b"x"], [0, 1])
        # This process ends with it.
        warm.recv(1)


if __name__ == "__main__":
    main()
