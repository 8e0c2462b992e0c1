// Publishes the messages that it reads, one JSON object a line, and answers each with a line.
//
//     npm install
//     redisdelay protocol > protocol.json
//     echo '{"topic": "orders", "uuid": "1", "payload_base64": "aGk=", "delay_ms": 5000}' | node publisher.js protocol.json
"use strict";

const readline = require("node:readline");
const { setTimeout: sleep } = require("node:timers/promises");
const redis = require("redis");
const protocol = require("./protocol.js");

const LOOK_EVERY = 5000; // ms; for more partitions
const TIMEOUT = 15000; // ms; how long to try

// Failure is an error with the result to answer with.
class Failure extends Error {
  constructor(result, text) {
    super(text);
    this.result = result;
  }
}

// Publisher sends one batch at a time, and the same one again until Redis answers.
class Publisher {
  constructor(scripts, prefix, database) {
    Object.assign(this, { scripts, prefix, database, ids: new protocol.ULIDs(), number: 0, turn: 0, topics: new Map() });
    this.name = this.ids.next(); // a new one each time the program starts
  }

  async publish(order) {
    const deadline = Date.now() + TIMEOUT;
    const version = order.ordering_key || order.ttl_ms ? "3" : "1";
    const partitions = await this.until(deadline, "refused", () => this.open(order.topic, version));
    const chooser = order.ordering_key || order.key;
    const partition = chooser ? protocol.partitionOf(chooser, partitions) : ++this.turn % partitions;
    const tag = protocol.tag(this.prefix, order.topic, partition);
    const args = [this.name, ++this.number, "reject", this.channel(tag), 0, 1,
      this.ids.next() + protocol.traits(order), order.delay_ms ?? 0,
      protocol.encode(order.uuid, metadataOf(order), Buffer.from(order.payload_base64 ?? "", "base64"))];
    const rejected = await this.until(deadline, "unknown", () => this.scripts.run("push", this.scripts.keys("push", tag), args));
    if (rejected.length) throw new Failure("duplicate", `key ${order.key} is in use`);
  }

  channel(tag) {
    return `${tag}:wake:${this.database}`;
  }

  // open lists a topic, and returns how many partitions it has.
  async open(name, version) {
    const known = this.topics.get(name);
    if (known && known.version >= version && Date.now() - known.seen < LOOK_EVERY) return known.partitions;
    const registry = [`{${this.prefix}:topics}`];
    const first = protocol.tag(this.prefix, name, 0);
    let listed = await this.scripts.run("enlist", registry, [name, ""]);
    const partitions = (await this.scripts.run("raise", this.scripts.keys("raise", first), [1, 0, this.channel(first)]))[0];
    if (!listed.length) { // Redis may have lost the list: what do the data need?
      let needed = 1;
      for (let p = 0; p < partitions; p++) {
        const keys = this.scripts.keys("needed", protocol.tag(this.prefix, name, p));
        needed = Math.max(needed, (await this.scripts.run("needed", keys, []))[0]);
      }
      listed = await this.scripts.run("enlist", registry, [name, needed]);
    }
    if (version !== "1") listed = await this.scripts.run("enlist", registry, [name, version]);
    const major = Number(listed[0].split(".")[0]);
    if (!(major >= 1 && major <= 3)) throw new Failure("refused", `topic ${name} has version ${listed[0]} of the protocol`);
    this.topics.set(name, { partitions, version, seen: Date.now() });
    return partitions;
  }

  // until makes a call, again and again while the error may pass.
  async until(deadline, otherwise, call) {
    for (let pause = 20; ; pause = Math.min(1000, 2 * pause)) {
      try {
        return await call();
      } catch (error) {
        if (error instanceof Failure) throw error;
        const answered = error instanceof redis.ErrorReply;
        const kind = answered ? protocol.classify(error.message) : "again";
        if (/^(NOTSTORED )?STALE/.test(error.message)) this.name = this.ids.next();
        if (kind === "refused") throw new Failure("refused", error.message);
        if (kind !== "again" || Date.now() + pause > deadline) throw new Failure(otherwise, error.message);
      }
      await sleep(pause);
    }
  }
}

// metadataOf also has what the id tells, for handlers and operators.
function metadataOf(order) {
  const metadata = { ...order.metadata };
  if (order.key) metadata._redisdelay_key = order.key;
  if (order.ordering_key) metadata._redisdelay_ordering_key = order.ordering_key;
  if (order.ttl_ms) metadata._redisdelay_ttl = `${order.ttl_ms}ms`;
  return metadata;
}

async function main() {
  const url = process.env.REDIS_URL ?? "redis://localhost:6379";
  const socket = { reconnectStrategy: () => 20, connectTimeout: 5000, socketTimeout: 5000 }; // a Redis that hangs gives no error
  const client = redis.createClient({ url, disableOfflineQueue: true, socket });
  client.on("error", () => {}); // calls fail, and are made again
  await client.connect();
  const database = Number(new URL(url).pathname.slice(1) || 0);
  const publisher = new Publisher(new protocol.Scripts(client, process.argv[2]), process.env.REDISDELAY_PREFIX ?? "redisdelay", database);
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const order = JSON.parse(line);
    const answer = { uuid: order.uuid, result: "stored" };
    try {
      await publisher.publish(order);
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      Object.assign(answer, { result: error.result, error: error.message });
    }
    console.log(JSON.stringify(answer));
  }
  client.destroy();
}

main();
