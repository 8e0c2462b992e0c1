<?php
// Runs the scripts that `redisdelay protocol` prints.
declare(strict_types=1);

/** Redis has answered with an error. */
final class AnswerException extends Exception
{
}

/** A server, and the scripts to run on it. It connects again after an error of the connection. */
final class Scripts
{
    private array $byName = [];
    private ?Redis $redis = null;
    private array $url;

    public function __construct(string $url, string $file)
    {
        $this->url = parse_url($url);
        foreach (json_decode(file_get_contents($file), true)['scripts'] as $script) {
            $this->byName[$script['name']] = $script;
        }
    }

    public function database(): int
    {
        return (int) ltrim($this->url['path'] ?? '', '/');
    }

    /** The KEYS of a script in a partition and for a group. */
    public function keys(string $name, string $tag, string $group = ''): array
    {
        $ending = fn (string $kind) => in_array($kind, OF_GROUPS, true) ? ':' . $group : '';
        return array_map(fn (string $kind) => $tag . ':' . $kind . $ending($kind), $this->byName[$name]['keys']);
    }

    public function run(string $name, array $keys, array $args): array
    {
        $script = $this->byName[$name];
        try {
            return $this->call('EVALSHA', $script['sha1'], count($keys), ...$keys, ...$args);
        } catch (AnswerException $error) {
            if (classify($error->getMessage()) !== 'load') {
                throw $error;
            }
            return $this->call('EVAL', $script['text'], count($keys), ...$keys, ...$args);
        }
    }

    /** phpredis returns false for some errors that Redis answers with, and throws others, like those of the connection. */
    private function call(string|int ...$command): array
    {
        try {
            $this->redis ??= $this->connect();
            $this->redis->clearLastError();
            $reply = $this->redis->rawCommand(...$command);
            if ($reply === false) {
                throw new AnswerException((string) $this->redis->getLastError());
            }
            return (array) $reply;
        } catch (RedisException $error) {
            if (preg_match('/^[A-Z]{2,} /', $error->getMessage())) {
                throw new AnswerException($error->getMessage());
            }
            $this->redis = null;
            throw $error;
        }
    }

    private function connect(): Redis
    {
        $redis = new Redis();
        $tls = ($this->url['scheme'] ?? '') === 'rediss' ? 'tls://' : '';
        $redis->connect($tls . $this->url['host'], $this->url['port'] ?? 6379, 5.0);
        $redis->setOption(Redis::OPT_READ_TIMEOUT, 5);
        $redis->setOption(Redis::OPT_MAX_RETRIES, 0);
        if (isset($this->url['pass'])) {
            $user = rawurldecode($this->url['user'] ?? '');
            $password = rawurldecode($this->url['pass']);
            if (!$redis->auth($user === '' ? $password : [$user, $password])) {
                throw new AnswerException((string) $redis->getLastError());
            }
        }
        if ($this->database() !== 0 && !$redis->select($this->database())) {
            throw new AnswerException((string) $redis->getLastError());
        }
        return $redis;
    }
}
