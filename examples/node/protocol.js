// What a publisher of redisdelay needs to know. docs/inside/protocol.md has the rules.
"use strict";

const fs = require("node:fs");
const crypto = require("node:crypto");
const msgpack = require("@msgpack/msgpack");

const SLOTS = 16384;
const CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const CODES = { 1: "_watermill_delayed_until", 2: "_watermill_delayed_for" };
const OF_GROUPS = "queue unack attempts claims dead reasons changed consumers turns lanes".split(" ");

// What errors begin with, and what to do then.
const CLASSES = {
  refused: ["NOTSTORED "], load: ["NOSCRIPT "], stale: ["STALE "],
  again: ["LOADING ", "READONLY ", "MASTERDOWN ", "CLUSTERDOWN ", "TRYAGAIN ", "MOVED ", "ASK ", "NOREPLICAS ", "BUSY ", "UNBLOCKED ",
    "ERR max number of clients", "ERR Script attempted to execute a write command while the cluster is down"],
};

function crc(text) {
  let sum = 0;
  for (const byte of Buffer.from(text)) {
    sum ^= byte << 8;
    for (let bit = 0; bit < 8; bit++) sum = (sum & 0x8000 ? (sum << 1) ^ 0x1021 : sum << 1) & 0xffff;
  }
  return sum;
}

// tag is the hash tag that all keys of a topic partition begin with.
function tag(prefix, topic, number) {
  let head = `${prefix}:${topic.replaceAll("%", "%25").replaceAll("}", "%7D").replaceAll(":", "%3A")}:`;
  if (number === 0) return `{${head}0}`;
  const third = number % 3;
  const mirrored = parseInt([...Math.floor(number / 3).toString(2).padStart(16, "0")].reverse().join(""), 2);
  const wanted = (crc(head + "0") % SLOTS) + Math.floor((third * SLOTS + Math.floor((mirrored * SLOTS) / 65536)) / 3);
  head += `${number}.`;
  let salt = 0;
  while ((crc(head + salt) - wanted + 4 * SLOTS) % SLOTS >= 16) salt++;
  return `{${head}${salt}}`;
}

// partitionOf is the partition of an ordering key or, without one, a message key: FNV-1a and jump hash.
function partitionOf(key, partitions) {
  let state = 0xcbf29ce484222325n;
  for (const byte of Buffer.from(key)) state = BigInt.asUintN(64, (state ^ BigInt(byte)) * 0x100000001b3n);
  let chosen = -1;
  for (let next = 0; next < partitions;) {
    chosen = next;
    state = BigInt.asUintN(64, state * 2862933555777941757n + 1n);
    next = Math.floor((chosen + 1) * (2 ** 31 / (Number(state >> 33n) + 1)));
  }
  return chosen;
}

// traits is what follows the ULID in an id.
function traits({ ttl_ms: ttl, ordering_key: ordering, key }) {
  return (ttl ? `~${ttl}` : "") + (ordering ? `=${Buffer.byteLength(ordering)},${ordering}` : "") + (key ? `:${key}` : "");
}

// ULIDs sort in the order in which they were made, even if the clock is set back.
class ULIDs {
  last = 0n;

  next() {
    const made = (BigInt(Date.now()) << 80n) | BigInt("0x" + crypto.randomBytes(10).toString("hex"));
    this.last = made >> 80n > this.last >> 80n ? made : this.last + 1n;
    let text = "";
    for (let shift = 125n; shift >= 0n; shift -= 5n) text += CROCKFORD[Number((this.last >> shift) & 31n)];
    return text;
  }
}

// encode returns the body of a message; metadata is an object of strings, payload a Buffer.
function encode(uuid, metadata, payload) {
  const packed = metadata && Object.keys(metadata).length ? msgpack.encode(metadata) : null;
  return Buffer.from(msgpack.encode([uuid, packed, payload]));
}

function decode(body) {
  const [uuid, packed, payload] = msgpack.decode(body);
  const metadata = {};
  for (const [name, value] of Object.entries(packed ? msgpack.decode(Buffer.from(packed)) : {})) metadata[CODES[name] ?? name] = value;
  return { uuid, metadata, payload: Buffer.from(payload ?? "") };
}

// dueMs is when a message is due, as the scripts reckon.
function dueMs(nowUs, delayMs) {
  return delayMs <= 0 ? Math.floor(nowUs / 1000) : Math.ceil(nowUs / 1000) + delayMs;
}

// classify says what to do after an error that Redis has answered with.
function classify(error) {
  const found = Object.entries(CLASSES).find(([, begins]) => begins.some((text) => error.startsWith(text)));
  return found ? found[0] : "unknown";
}

// Scripts are those that `redisdelay protocol` prints, and a client of the server to run them on.
class Scripts {
  constructor(client, file) {
    this.client = client;
    this.byName = Object.fromEntries(JSON.parse(fs.readFileSync(file)).scripts.map((script) => [script.name, script]));
  }

  async run(name, keys, args) {
    const { sha1, text } = this.byName[name];
    const rest = [String(keys.length), ...keys, ...args.map((arg) => (Buffer.isBuffer(arg) ? arg : String(arg)))];
    try {
      return await this.client.sendCommand(["EVALSHA", sha1, ...rest]);
    } catch (error) {
      if (classify(error.message) !== "load") throw error;
      return this.client.sendCommand(["EVAL", text, ...rest]);
    }
  }

  // keys are the KEYS of a script in a partition and for a group.
  keys(name, partitionTag, group) {
    return this.byName[name].keys.map((kind) => `${partitionTag}:${kind}${OF_GROUPS.includes(kind) ? ":" + group : ""}`);
  }
}

module.exports = { SLOTS, OF_GROUPS, crc, tag, partitionOf, traits, ULIDs, encode, decode, dueMs, classify, Scripts };
