"""Servers of a few lines that answer what a test wants, true or not."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

type Reply = tuple[int, dict[str, str], bytes]


class Stub:
    """Answers GET and HEAD through `reply(path, headers)`. An answer names its own length unless
    its headers do."""

    def __init__(self, reply: Callable[[str, dict[str, str]], Reply], tls=None) -> None:
        stub = self
        self.asked: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                stub.asked.append(self.path)
                status, headers, body = reply(self.path, dict(self.headers.items()))
                self.send_response_only(status)
                for name, value in ({"Content-Length": str(len(body))} | headers).items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_HEAD = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls is not None:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
