// Publishes a delayed message with XADD and receives it with XREADGROUP.
//
// It needs npm's redis, a Redis at REDIS_URL, and a process that runs the inbox and a relay for the topic: see
// docs/use/languages.md.

const { randomUUID } = require("node:crypto");
const { createClient } = require("redis");

const inbox = "{redisdelay:inbox}:entries";
const [topic, group, consumer] = ["orders", "billing", randomUUID()];

const client = createClient({ url: process.env.REDIS_URL ?? "redis://localhost:6379" });
client.on("error", (error) => console.error(error.message)); // it connects again

async function publish(payload, delayMs) {
  const uuid = randomUUID();
  await client.xAdd(inbox, "*", { topic, uuid, delay_ms: String(delayMs), payload });
  return uuid;
}

async function createGroup() {
  try {
    await client.xGroupCreate(topic, group, "0", { MKSTREAM: true });
  } catch (error) {
    if (!error.message.includes("BUSYGROUP")) throw error; // else the group exists
  }
}

async function* receive() {
  for (;;) {
    // Entries that another consumer received but did not acknowledge within a minute, probably because it died.
    yield* (await client.xAutoClaim(topic, group, consumer, 60_000, "0-0", { COUNT: 10 })).messages;
    const streams = await client.xReadGroup(group, consumer, { key: topic, id: ">" }, { COUNT: 10, BLOCK: 1000 });
    for (const stream of streams ?? []) yield* stream.messages;
  }
}

async function main() {
  await client.connect();
  await createGroup();
  const published = await publish('{"order": 42}', 500);
  for await (const { id, message } of receive()) {
    console.log("received", message.payload);
    await client.xAck(topic, group, id);
    if (message._watermill_message_uuid === published) break;
  }
  client.destroy();
}

main();
