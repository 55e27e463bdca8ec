// Package watchcachetest is for tests of code that works with package watchcache.
//
// [Source] is a scripted source: a store that the test changes, and that fails
// where the test says. It is what an application's tests put in the place of the
// real one.
//
// [Checker] compares what watchers took with what was written, and says which
// line of the contract was broken, what had to come next, and what came. It is
// what the tests of an adapter, of a proxy, or of anything else that passes
// events on, verify their streams with:
//
//	check := watchcachetest.NewChecker(watchcache.Options[int]{})
//	cache, _ := watchcache.New(watchcache.Options[int]{})
//	writer := watchcachetest.NewWriter(check, cache)
//	writer.Put("a", 1)
//
//	w, _ := cache.Watch(ctx, watchcache.WatchOptions[int]{})
//	watched := check.Watcher("all", nil, watchcache.Position{})
//	follower := watched.Follow(t, w)
//	writer.Put("b", 2)
//
//	cache.Shutdown(ctx) // lets watchers take what was committed
//	<-follower.Done()
//	watched.CaughtUp(cache.Position())
//	check.Verify(t)
//
// [RunConformance] does all of that with an adapter or a wrapper, and breaks its
// connections: it is the whole of such a module's test of the contract.
//
// [Follow] alone keeps what a watcher took, for tests that only look at that.
//
// Nothing here sleeps, and everything that waits works inside a [testing/synctest]
// bubble: there, synctest.Wait says when a follower has taken all, and CaughtUp may
// follow in the middle of a test.
package watchcachetest
