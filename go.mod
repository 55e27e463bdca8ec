module github.com/watchcache/watchcache

go 1.26
