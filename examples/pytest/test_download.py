"""Three tests of a client behind a link: a slow one, a lossy one, and one whose server is in the test itself."""

from __future__ import annotations

import asyncio

from farwire import Wan

CURL = ["curl", "--fail", "--silent", "--show-error", "--retry", "5", "--retry-all-errors"]


def test_the_download_survives_loss(wan: Wan) -> None:
    wan.serve(["python3", "-m", "http.server", "8000"], port=8000)
    with wan.impaired(delay="20ms", loss="30%"):
        ended = wan.exec([*CURL, f"http://{wan.server}:8000/"])
    assert "Directory listing" in ended.stdout
    wan.assert_met(dropped=True)


def test_an_outage_ends_in_time(wan: Wan) -> None:
    wan.serve()
    with wan.impaired(up={"loss": "100%"}):
        client = wan.start([*CURL, f"http://{wan.server}/bytes/100000", "--output", "/dev/null"])
        wan.assert_met(dropped=True, direction="up", within=10)
    assert client.wait(timeout=60) == 0


def test_a_stream_waits_for_the_delay(wan: Wan) -> None:
    async def exchange() -> float:
        listener = wan.socket(far=True)
        listener.bind(("", 4000))

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.readline())
            await writer.drain()
            writer.close()

        async with await asyncio.start_server(answer, sock=listener):
            loop = asyncio.get_running_loop()
            client = wan.socket()
            client.setblocking(False)
            await loop.sock_connect(client, (wan.server, 4000))
            reader, writer = await asyncio.open_connection(sock=client)
            begun = loop.time()
            writer.write(b"hello\n")
            assert await reader.readline() == b"hello\n"
            writer.close()
            return loop.time() - begun

    wan.set(delay="30ms")
    assert asyncio.run(exchange()) >= 0.06
    wan.assert_met()
