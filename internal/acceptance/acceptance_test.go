package acceptance

import redisdelay "github.com/redisdelay/watermill-redisdelay"

type subConfig = redisdelay.SubscriberConfig
