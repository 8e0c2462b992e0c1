"""Adds numbered entries to the inbox, each under an id that it has chosen and printed before. If it dies without an answer, the
next process adds the same entry again, and Redis says if it is there.

    python3 add.py topic first count last pause_ms

`last` is the id that was printed last, "" if there is none.
"""

import json
import os
import sys
import time

import redis

INBOX = "{redisdelay:inbox}:entries"
BURST = 200  # entries between two pauses


def tell(outcome, number, entry, due_ms):
    event = {"kind": "published", "outcome": outcome, "uuid": str(number), "id": entry, "due": due_ms * 1000, "at": time.time_ns() // 1000}
    print(json.dumps(event) + "\n", end="", flush=True)  # one write, so that a kill cuts no line


def add(client, entry, fields):
    """Adds an entry, again and again while Redis is away."""
    while True:
        try:
            return client.xadd(INBOX, fields, id=entry)
        except (redis.ConnectionError, redis.TimeoutError):
            time.sleep(0.02)
        except redis.ResponseError as error:
            if "equal or smaller" not in str(error):
                raise
            return entry  # it is there; the answer was lost


def main():
    topic, first, count, last, pause_ms = sys.argv[1:]
    client = redis.Redis.from_url(os.environ["REDIS_URL"], socket_timeout=5)
    ms, told = map(int, last.split("-")) if last else (0, -1)
    for number in range(int(first), int(count)):
        if number != told:  # else it is in doubt, and keeps its id
            ms = max(ms, time.time_ns() // 1_000_000)  # ids grow, also if the clock is set back
        entry, delay_ms, uuid = "%d-%d" % (ms, number), number * 7919 % 2000, str(number)
        tell("unknown", number, entry, ms + delay_ms)
        add(client, entry, {"topic": topic, "uuid": uuid, "payload": "payload of " + uuid, "delay_ms": delay_ms})
        tell("ok", number, entry, ms + delay_ms)
        if number % BURST == BURST - 1:
            time.sleep(int(pause_ms) / 1000)


if __name__ == "__main__":
    main()
