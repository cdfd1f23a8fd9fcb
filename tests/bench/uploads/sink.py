"""A server that takes the bytes of tus uploads and does nothing with them: the client's own limit.

    python -m tests.bench.uploads.sink PORT

No server can be faster with a given client than this one, which neither copies what comes nor
writes, hashes or checks it. It serves one connection at a time and is of no other use.
"""

import socket
import sys

ROOM = memoryview(bytearray(2**20))


def main(port: int) -> None:
    with socket.create_server(("127.0.0.1", port)) as listener:
        while True:
            client, _ = listener.accept()
            with client:
                serve(client)


def serve(client: socket.socket) -> None:
    held = b""
    while True:
        while b"\r\n\r\n" not in held:
            came = client.recv(65536)
            if not came:
                return
            held += came
        head, _, held = held.partition(b"\r\n\r\n")
        first, *lines = head.split(b"\r\n")
        fields = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(b":") for line in lines)
        }
        length = int(fields.get(b"content-length", b"0"))
        left = length - len(held)
        held = held[length:]
        while left > 0:
            # MSG_TRUNC: Linux drops the bytes of a TCP stream instead of copying them.
            took = client.recv_into(ROOM, min(left, len(ROOM)), socket.MSG_TRUNC)
            if not took:
                return
            left -= took
        client.sendall(answer(first, int(fields.get(b"upload-offset", b"0")) + length))


def answer(first: bytes, offset: int) -> bytes:
    created = b"Location: /files/one\r\n" if first.startswith(b"POST") else b""
    status = b"201 Created" if created else b"204 No Content"
    return (
        b"HTTP/1.1 "
        + status
        + b"\r\nTus-Resumable: 1.0.0\r\nContent-Length: 0\r\n"
        + created
        + b"Upload-Offset: "
        + str(offset if not created else 0).encode()
        + b"\r\n\r\n"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]))
