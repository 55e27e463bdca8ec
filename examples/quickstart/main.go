// Command quickstart is the library in thirty lines: feature flags that somebody
// changes while somebody else watches.
package main

import (
	"context"
	"fmt"

	"github.com/watchcache/watchcache"
)

func main() {
	flags, _ := watchcache.New(watchcache.Options[bool]{})
	flags.Put("beta/search", true)

	w, _ := flags.Watch(context.Background(), watchcache.WatchOptions[bool]{Prefix: "beta/"})
	go func() {
		<-w.Synced() // the watcher has the state: from here on it gets every change
		flags.Put("beta/search", false)
		flags.Put("dark-mode", true) // not selected
		flags.Delete("beta/search")
		flags.Shutdown(context.Background())
	}()

	for event, err := range w.Events() {
		if err != nil {
			fmt.Println("the end:", err)
			break
		}
		fmt.Println(event.Revision, event.Type, event.Key, event.Object)
	}
}
