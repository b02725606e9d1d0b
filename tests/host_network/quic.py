"""Transfers data by QUIC through a link that loses packets meanwhile, and prints what QUIC knows of each packet.

    quic.py serve            serves at 127.0.0.1, and prints a line when it does
    quic.py send ADDRESS AT  sends data to a server there, while the link of farwire's API at AT loses packets in both directions

The client prints a line of JSON with the packets of both ends. The server runs until it is killed.
"""

import asyncio
import datetime
import hashlib
import json
import ssl
import sys

from aioquic.asyncio import connect, serve
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.congestion.base import register_congestion_control
from aioquic.quic.congestion.reno import RenoCongestionControl
from aioquic.quic.logger import QuicLogger
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

import farwire

PORT = 4433
LOSS = "3%"
# A socket holds the packets of one part, so that only the link loses any.
PART = bytes(32_768)
PARTS = 40
# The streams after the loss. Each has a packet in both directions that is acknowledged, and a packet is lost when the third one after it is
# acknowledged (RFC 9002, section 6.1.1).
LAST = 5
# The content of the stream that the server answers with its packets.
PACKETS = b"packets"

LOGGER = QuicLogger()
BY_ACKNOWLEDGEMENT = set()


class Counted(RenoCongestionControl):
    """Reno, which is told of the packets with data that acknowledgements of later ones prove lost.

    aioquic's log also has as lost what it sends again when no acknowledgement came in time; such packets may arrive.
    """

    def on_packets_lost(self, *, now, packets):
        packets = list(packets)
        BY_ACKNOWLEDGEMENT.update(packet.packet_number for packet in packets)
        super().on_packets_lost(now=now, packets=packets)


def configuration(is_client):
    register_congestion_control("counted", Counted)
    return QuicConfiguration(
        alpn_protocols=["farwire-test"],
        congestion_control_algorithm="counted",
        idle_timeout=120.0,
        is_client=is_client,
        quic_logger=LOGGER,
        verify_mode=ssl.CERT_NONE,
    )


def packets():
    """Returns the numbers of this end's packets of data. The packets of the handshake have other numbers."""
    [trace] = LOGGER.to_dict()["traces"]
    numbers = {"sent": set(), "received": set(), "lost": set()}
    for event in trace["events"]:
        _, _, happened = event["name"].partition(":packet_")
        if happened in numbers:
            data = event["data"]
            header = data.get("header", data)
            if header.get("packet_type", header.get("type")) == "1RTT":
                numbers[happened].add(header["packet_number"])
    numbers["lost_by_acknowledgement"] = BY_ACKNOWLEDGEMENT
    return {name: sorted(own) for name, own in numbers.items()}


def certificate():
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + datetime.timedelta(days=1))
    return builder.sign(key, SHA256()), key


async def answer(reader, writer):
    content = await reader.read()
    writer.write(json.dumps(packets()).encode() if content == PACKETS else hashlib.sha256(content).digest())
    writer.write_eof()


async def serve_until_killed():
    server = configuration(is_client=False)
    server.certificate, server.private_key = certificate()
    tasks = []

    def accept(reader, writer):
        tasks.append(asyncio.ensure_future(answer(reader, writer)))

    await serve("127.0.0.1", PORT, configuration=server, stream_handler=accept)
    print("serves", flush=True)
    await asyncio.get_running_loop().create_future()


async def send(address, at):
    async with connect(address, PORT, configuration=configuration(is_client=True)) as connection:

        async def ask(content):
            reader, writer = await connection.create_stream()
            writer.write(content)
            writer.write_eof()
            return await reader.read()

        async def transfer(content):
            assert await ask(content) == hashlib.sha256(content).digest()

        link = farwire.Client(at).link()
        await transfer(b"before the loss")
        link.patch({"loss": LOSS})
        for _ in range(PARTS):
            await transfer(PART)
        link.patch({"loss": None})
        for _ in range(LAST):
            await transfer(b"after the loss")
        far = json.loads(await ask(PACKETS))
        print(json.dumps({"near": packets(), "far": far}))


if sys.argv[1:] == ["serve"]:
    asyncio.run(serve_until_killed())
else:
    _, _, address, at = sys.argv
    asyncio.run(send(address, at))
