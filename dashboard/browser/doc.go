// Package browser has the tests of the dashboard that need a real browser. It is a module of its own, since what drives the
// browser is no dependency of the library.
package browser
