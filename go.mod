module github.com/watchcache/watchcache

go 1.26

require go.uber.org/goleak v1.3.0

require pgregory.net/rapid v1.3.0

require github.com/benbjohnson/clock v1.3.5

require github.com/anishathalye/porcupine v1.3.1
