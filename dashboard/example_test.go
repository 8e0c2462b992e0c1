package dashboard_test

import (
	"errors"
	"log"
	"net/http"

	"github.com/redis/go-redis/v9"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/dashboard"
)

// Serve the dashboard below a path of your service. Only administrators may change anything.
func Example() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	operator, err := admin.New(admin.Config{Client: client})
	if err != nil {
		log.Fatal(err)
	}
	pages, err := dashboard.New(dashboard.Config{
		Admin: operator,
		Access: func(r *http.Request) dashboard.Access {
			if isAdministrator(r) {
				return dashboard.FullAccess()
			}
			return dashboard.ReadOnly()
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("/delay/", http.StripPrefix("/delay", pages))
	err = http.ListenAndServe("localhost:8080", nil)
	log.Println(errors.Join(err, pages.Close()))
}

func isAdministrator(r *http.Request) bool { return r.Header.Get("X-Role") == "administrator" } // set by a proxy, for example
