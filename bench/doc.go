// Package bench compares this library with what its users would take instead: the
// same work, in one process, so that ratios hold on a machine that others use too.
//
//	go run ./run                                        # every case; writes results/
//	go test -run '^$' -bench 'Saturated/.*/watchers=100$' # one case
//	go test -run '^$' -bench . -benchtime 1x -short       # that every case runs
//
// The cases are the Benchmark functions, the peers package peer's.
package bench
