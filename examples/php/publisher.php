<?php
// Publishes the messages that it reads, one JSON object a line, and answers each with a line.
//
//     redisdelay protocol > protocol.json
//     echo '{"topic": "orders", "uuid": "1", "payload_base64": "aGk=", "delay_ms": 5000}' | php publisher.php protocol.json
declare(strict_types=1);

require __DIR__ . '/protocol.php';
require __DIR__ . '/scripts.php';

const LOOK_EVERY = 5.0; // seconds; for more partitions
const TIMEOUT = 15.0; // seconds; how long to try

/** What to answer if a message is not, or perhaps not, stored. */
final class Failure extends Exception
{
    public function __construct(public readonly string $result, string $text)
    {
        parent::__construct($text);
    }
}

/** It sends one batch at a time, and the same one again until Redis answers. */
final class Publisher
{
    private ULIDs $ids;
    private string $name;
    private int $number = 0;
    private int $turn = 0;
    private array $topics = [];

    public function __construct(private Scripts $scripts, private string $prefix)
    {
        $this->ids = new ULIDs();
        $this->name = $this->ids->next(); // a new one each time the program starts
    }

    public function publish(array $order): void
    {
        $deadline = microtime(true) + TIMEOUT;
        $chooser = ($order['ordering_key'] ?? '') !== '' ? $order['ordering_key'] : $order['key'] ?? '';
        $version = ($order['ordering_key'] ?? '') !== '' || ($order['ttl_ms'] ?? 0) ? '3' : '1';
        $partitions = $this->until($deadline, 'refused', fn () => $this->open($order['topic'], $version));
        $partition = $chooser !== '' ? partitionOf($chooser, $partitions) : ++$this->turn % $partitions;
        $tag = tag($this->prefix, $order['topic'], $partition);
        $body = encode($order['uuid'], $this->metadataOf($order), base64_decode($order['payload_base64'] ?? ''));
        $args = [$this->name, ++$this->number, 'reject', $this->channel($tag), 0,
            1, $this->ids->next() . traits($order), $order['delay_ms'] ?? 0, $body];
        $rejected = $this->until($deadline, 'unknown', fn () => $this->scripts->run('push', $this->scripts->keys('push', $tag), $args));
        if ($rejected) {
            throw new Failure('duplicate', "key {$order['key']} is in use");
        }
    }

    /** The metadata also have what the id tells, for handlers and operators. */
    private function metadataOf(array $order): array
    {
        $metadata = $order['metadata'] ?? [];
        foreach (['key' => '_redisdelay_key', 'ordering_key' => '_redisdelay_ordering_key'] as $field => $name) {
            if (($order[$field] ?? '') !== '') {
                $metadata[$name] = $order[$field];
            }
        }
        if ($order['ttl_ms'] ?? 0) {
            $metadata['_redisdelay_ttl'] = $order['ttl_ms'] . 'ms';
        }
        return $metadata;
    }

    private function channel(string $tag): string
    {
        return $tag . ':wake:' . $this->scripts->database();
    }

    /** Lists a topic, and returns how many partitions it has. */
    private function open(string $name, string $version): int
    {
        $known = $this->topics[$name] ?? null;
        if ($known && $known['version'] >= $version && microtime(true) - $known['seen'] < LOOK_EVERY) {
            return $known['partitions'];
        }
        $registry = ['{' . $this->prefix . ':topics}'];
        $first = tag($this->prefix, $name, 0);
        $listed = $this->scripts->run('enlist', $registry, [$name, '']);
        $partitions = $this->scripts->run('raise', $this->scripts->keys('raise', $first), [1, 0, $this->channel($first)])[0];
        if (!$listed) { // Redis may have lost the list: what do the data need?
            $needed = 1;
            for ($p = 0; $p < $partitions; $p++) {
                $keys = $this->scripts->keys('needed', tag($this->prefix, $name, $p));
                $needed = max($needed, $this->scripts->run('needed', $keys, [])[0]);
            }
            $listed = $this->scripts->run('enlist', $registry, [$name, $needed]);
        }
        if ($version !== '1') {
            $listed = $this->scripts->run('enlist', $registry, [$name, $version]);
        }
        if (!in_array(explode('.', $listed[0])[0], ['1', '2', '3'], true)) {
            throw new Failure('refused', "topic $name has version $listed[0] of the protocol");
        }
        $this->topics[$name] = ['partitions' => $partitions, 'version' => $version, 'seen' => microtime(true)];
        return $partitions;
    }

    /** Makes a call, again and again while the error may pass. */
    private function until(float $deadline, string $otherwise, callable $call): mixed
    {
        for ($pause = 0.02;; $pause = min(1.0, 2 * $pause)) {
            try {
                return $call();
            } catch (AnswerException $error) {
                $class = classify($error->getMessage());
            } catch (RedisException $error) {
                $class = 'again'; // no answer
            }
            if (preg_match('/^(NOTSTORED )?STALE/', $error->getMessage())) {
                $this->name = $this->ids->next();
            }
            if ($class === 'refused') {
                throw new Failure('refused', $error->getMessage());
            }
            if ($class !== 'again' || microtime(true) + $pause > $deadline) {
                throw new Failure($otherwise, $error->getMessage());
            }
            usleep((int) ($pause * 1e6));
        }
    }
}

$scripts = new Scripts(getenv('REDIS_URL') ?: 'redis://localhost:6379', $argv[1]);
$publisher = new Publisher($scripts, getenv('REDISDELAY_PREFIX') ?: 'redisdelay');
while (($line = fgets(STDIN)) !== false) {
    $order = json_decode($line, true);
    $answer = ['uuid' => $order['uuid'], 'result' => 'stored'];
    try {
        $publisher->publish($order);
    } catch (Failure $failure) {
        $answer = ['uuid' => $order['uuid'], 'result' => $failure->result, 'error' => $failure->getMessage()];
    }
    echo json_encode($answer, JSON_UNESCAPED_UNICODE | JSON_INVALID_UTF8_SUBSTITUTE), "\n";
}
