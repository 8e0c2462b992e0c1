// Package acceptance tests the library as a whole, through its public API and on real
// servers: Watermill's own suite, crashes, clusters, hanging and old servers, rights, and
// stacks of middlewares. Random faults are in package chaos.
package acceptance
