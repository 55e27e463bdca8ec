// Package watchcache keeps the current state of a collection (key → object of
// any type) and the recent history of its changes in memory, and serves any
// number of local watchers. Each gets the state, and then every change, in order,
// once; or it resumes where it stopped.
//
// A watcher is a cursor on shared history, not a goroutine with a queue: a
// consumer that stops reading costs the writer and the other watchers nothing,
// and what then happens to it is a [StallPolicy]'s choice.
//
// # The contract
//
//  1. Order, once, no gaps. A watcher that starts after position p gets every
//     matching event of every commit > p, in revision order, inside a commit in
//     commit order, once, until it ends.
//  2. Atomic commits. History never keeps half a commit. A watcher's position
//     moves only when all of a commit's events for it were taken, so that
//     stopping after 1 of 3 events and resuming loses none and skips none: the
//     whole commit comes again.
//  3. Snapshot, then stream. A watcher that starts with the state gets every
//     matching object of one snapshot at revision S, sorted by key, each as Added
//     with Initial set; then Synced at S, at once, also for an empty match and
//     with no write needed; then exactly the events > S. No position is given out
//     before Synced; Synced's position is resumable on arrival, unless history has
//     turned over once during the initial phase: then the stream says so next.
//  4. Selection is one rule everywhere. The same key, prefix, range, index and
//     filter decide in snapshot, history and stream, on the old and the new
//     object: enters → Added, stays → Modified, leaves → Deleted with cause
//     LeftFilter and the new object at hand, gone → Deleted with cause Removed
//     and the last object. A Deleted event carries the revision of the commit
//     that deleted.
//  5. Every stream says why it ended. The last pair of a sequence is an error.
//     Nothing ends silently; nothing is dropped silently.
//  6. Expired is honest. Resuming before Oldest or at another epoch ([ErrExpired]),
//     or beyond the head ([ErrFuture]), fails at Watch with a typed error that
//     carries what was asked and what is available. No events are delivered
//     first. A client that may be ahead of this cache says so
//     ([Start.AllowFuture]): it starts at once, and gets nothing at or below its
//     position.
//  7. Isolation. A slow, stalled, parked or ended watcher costs the writer and
//     the other watchers nothing measurable. No user code (filter, index, policy,
//     loop body) runs under a lock of the cache.
//  8. Traffic that a watcher did not select never hurts it. A watcher on a key,
//     range, prefix or index value is neither woken by, nor lags behind, nor
//     expires because of events elsewhere. Idle and narrow watchers that ask for
//     bookmarks get them, so that their position keeps up.
//  9. Bounded memory. History is bounded by count, age and bytes, shrinks by
//     itself when idle, and clears what it drops. A stalled watcher pins no
//     history. A watcher in its initial phase pins its snapshot until it is synced
//     or judged stalled: then the snapshot is released at once, even while its
//     consumer is still blocked inside the loop body.
//  10. No goroutine per watcher. At most two goroutines per cache. After Stop,
//     cancel, break or Close: zero left, registrations back to zero. Stop and
//     Close never block on a consumer, are idempotent, and may be called from
//     anywhere, also inside the loop body.
//  11. Progress, not total time. The initial phase's limit restarts with every
//     event taken. Slow but moving is never ended.
//  12. All or nothing in. A commit or listing that is refused (revision not above
//     the last, empty key, error half-way through the listing, panic in an index
//     function) changes nothing and says why.
//  13. Relist without drama. When the source lost its place and lists anew at a
//     higher revision R (the head was H), live watchers get the difference as one
//     commit at R, or end as expired, by option. Positions and past reads strictly
//     between H and R are expired. At R = H with no difference nothing happens;
//     with one: as by the expire option. At a lower revision or under another
//     epoch, as after a restored backup, all watchers end as expired and old
//     positions are refused.
//  14. Bookmarks are true. After a bookmark at r nothing ≤ r follows, except that
//     a Reset may begin again at r; bookmarks never go back, also across a resync;
//     there is none before the state is known. Where commits continue a revision,
//     this counts positions: the next part of r comes after the bookmark.
//  15. Time. All of it goes through Options.Clock; wall-clock jumps change
//     nothing.
//
// # Slow consumers
//
// A consumer that is slow and moves is never ended in its initial phase. While
// streaming, it may fall behind as far as history reaches. Beyond that its
// [StallPolicy] decides: [Evict] (the default) ends it with an error that says
// where it was, [Resync] starts it again on the same stream. In the initial phase
// a consumer that takes nothing for 30 s is ended, by default, and the snapshot
// that it held is released, wherever the consumer hangs.
//
// Size history for the longest initial phase as well: who takes longer over its
// state than history reaches gets the whole state, Synced, and that judgement
// then, and would get the same if it started again from the state.
//
// # Objects
//
// Objects are shared by the cache and all its watchers: they are read-only. To
// change one, put a changed copy. [Options].Clone is for consumers that cannot be
// trusted with this.
//
// # Testing
//
// Everything that waits does so through Options.Clock, and in ways that a
// [testing/synctest] bubble understands, so that code that uses a cache is tested
// without sleeping. Package watchcachetest has a scripted source and a checker of this
// contract.
package watchcache
