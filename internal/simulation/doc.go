// Package simulation is whole lives of a cache, each made from one seed: a source
// that fails in every way, processes that restart, up to 200 clients of every kind
// that stall, crawl, vanish, resume and reconnect in storms, and a clock that jumps.
// The checker of package watchcachetest follows all of it.
//
// A life is a plan, which is data: a list of steps, each of which means something
// wherever it stands. It runs in a testing/synctest bubble, on one goroutine that
// lets everything come to rest after each step. So the same plan always runs the
// same, and a plan that fails is shrunk by leaving out steps for as long as it fails.
//
//	go test ./internal/simulation -run Simulation -seeds 500        # more of them
//	go test ./internal/simulation -run Simulation -seed 17          # one again, shrunk if it fails
//	go test ./internal/simulation -run Soak -soak 1h -timeout 0 -v  # for as long as asked, with figures
//
// There is nothing here but tests.
package simulation
