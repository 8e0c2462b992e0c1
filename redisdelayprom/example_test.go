package redisdelayprom_test

import (
	"log"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	redisdelayprom "github.com/redisdelay/watermill-redisdelay/redisdelayprom"
)

func Example() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	metrics, err := redisdelayprom.New(redisdelayprom.Config{})
	if err != nil {
		log.Fatal(err)
	}
	operator, err := admin.New(admin.Config{Client: client})
	if err != nil {
		log.Fatal(err)
	}
	backlog, err := redisdelayprom.NewCollector(redisdelayprom.CollectorConfig{Admin: operator})
	if err != nil {
		log.Fatal(err)
	}
	prometheus.MustRegister(metrics, backlog)
	http.Handle("/metrics", promhttp.Handler())

	subscriber, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
		Client: client, ConsumerGroup: "billing", Observer: metrics.Observer(),
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	_ = subscriber // goes to a Router
}
