"""The conformance fixture on standard input and output, at once: hands both to a server that is already warm, and waits.

The SDK takes a second to import, which is long for one that is started anew for every session.
"""

import socket
import sys


def main():
    with socket.socket(socket.AF_UNIX) as warm:
        warm.connect(sys.argv[1])
        socket.send_fds(warm, [b"x"], [0, 1])
        # Its end is ours.
        warm.recv(1)


if __name__ == "__main__":
    main()
