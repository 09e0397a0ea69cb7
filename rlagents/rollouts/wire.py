"""Length-prefixed frames over a socket. No jax."""

import socket
import struct

_HEADER = struct.Struct("!Q")


class FrameTooLongError(Exception):
    """The other side announced more bytes than are accepted."""


def send_frame(connection: socket.socket, payload: bytes) -> None:
    """Send one frame; raises ``OSError`` (``TimeoutError`` after the socket's timeout) if the other side is gone."""
    connection.sendall(_HEADER.pack(len(payload)) + payload)


def receive_frame(connection: socket.socket) -> bytes | None:
    """Wait for one frame; None if the other side has closed."""
    header = _receive_exactly(connection, _HEADER.size)
    return None if header is None else _receive_exactly(connection, _HEADER.unpack(header)[0])


def _receive_exactly(connection: socket.socket, count: int) -> bytes | None:
    chunks = bytearray()
    while len(chunks) < count:
        chunk = connection.recv(min(count - len(chunks), 1 << 20))
        if not chunk:
            return None
        chunks += chunk
    return bytes(chunks)


class FrameReader:
    """Collects a frame from a non-blocking socket, without ever waiting."""

    def __init__(self, connection: socket.socket, max_frame_bytes: int):
        self._connection, self._max_frame_bytes = connection, max_frame_bytes
        self._received = bytearray()

    @property
    def begun(self) -> bool:
        """Whether part of a frame has come."""
        return bool(self._received)

    def read(self) -> bytes | None:
        """The next whole frame, None if it has not come yet.

        Raises:
          EOFError: the other side has closed.
          FrameTooLongError: the frame is longer than ``max_frame_bytes``.
        """
        try:
            chunk = self._connection.recv(1 << 20)
        except BlockingIOError:
            return None
        except ConnectionError as error:
            raise EOFError from error
        if not chunk:
            raise EOFError
        self._received += chunk
        if len(self._received) < _HEADER.size:
            return None
        length = _HEADER.unpack_from(self._received)[0]
        if length > self._max_frame_bytes:
            raise FrameTooLongError(f"a frame of {length} bytes; at most {self._max_frame_bytes} are accepted")
        end = _HEADER.size + length
        if len(self._received) < end:
            return None
        frame = bytes(self._received[_HEADER.size : end])
        del self._received[:end]
        return frame
