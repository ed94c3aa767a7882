"""A TCP proxy that loses requests or answers on purpose."""

import socket
import threading


class CuttingProxy:
    """Passes HTTP/1.1 requests on, one after the other. `plan` gets the number and the path of each request, and says
    what becomes of it:

    - None: it is passed on.
    - "before": the connection is cut before the server has the request.
    - "after": the connection is cut when the server has answered.
    - "within": the connection is cut in the middle of the answer.
    - "hold": the answer is held back until the client goes away.
    """

    def __init__(self, port):
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._lock = threading.Lock()
        self.reset()
        threading.Thread(target=self._accept, daemon=True).start()

    def reset(self, plan=lambda _number, _path: None):
        with self._lock:
            self.paths, self.plan = [], plan
        self.held = threading.Event()

    def close(self):
        self._listener.close()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        try:
            with client, socket.create_connection(("127.0.0.1", self._port)) as server:
                while self._exchange(client, server):
                    pass
        except OSError:
            # One of the two has closed its connection.
            pass

    def _exchange(self, client, server):
        request = _message(client)
        if request is None:
            return False
        path = request.split(b" ", 2)[1].decode()
        with self._lock:
            number = len(self.paths)
            self.paths.append(path)
            fate = self.plan(number, path)
        if fate == "before":
            return False
        server.sendall(request)
        response = _message(server)
        if response is None or fate == "after":
            return False
        if fate == "within":
            client.sendall(response[: len(response) - 5])
            return False
        if fate == "hold":
            self.held.set()
            client.recv(1)
            return False
        client.sendall(response)
        return True


def _message(connection):
    """A whole message with a Content-Length; None at the end."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(65536)
        if not part:
            return None
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            length = int(value)
    while len(body) < length:
        part = connection.recv(65536)
        if not part:
            return None
        body += part
    return head + b"\r\n\r\n" + body
