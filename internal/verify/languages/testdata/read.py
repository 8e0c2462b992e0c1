"""Reads a stream for a consumer group until it is killed, and acknowledges what it has printed. It claims what others had when they
died.

    python3 read.py stream group
"""

import json
import os
import secrets
import sys
import time

import redis

NEGLECTED_MS = 1000  # after so long without an acknowledgement, an entry is claimed


def handle(client, stream, group, entry, fields):
    uuid = fields[b"_watermill_message_uuid"].decode()
    if fields[b"payload"] != b"payload of " + uuid.encode():
        uuid = "garbled " + uuid
    event = {"uuid": uuid, "id": entry.decode(), "group": group, "at": time.time_ns() // 1000}
    lines = [json.dumps({"kind": kind, **event}) + "\n" for kind in ("delivered", "handled")]
    print("".join(lines), end="", flush=True)
    client.xack(stream, group, entry)


def main():
    stream, group = sys.argv[1:]
    client = redis.Redis.from_url(os.environ["REDIS_URL"], socket_timeout=5)
    name, looked = secrets.token_hex(8), 0.0
    try:
        client.xgroup_create(stream, group, id="0", mkstream=True)
    except redis.ResponseError as error:
        if "BUSYGROUP" not in str(error):
            raise
    while True:
        entries = []
        if time.monotonic() - looked > 0.3:
            looked = time.monotonic()
            entries += client.xautoclaim(stream, group, name, NEGLECTED_MS, count=100)[1]
        for _, new in client.xreadgroup(group, name, {stream: ">"}, count=50, block=100):
            entries += new
        for entry, fields in entries:
            handle(client, stream, group, entry, fields)


if __name__ == "__main__":
    main()
