// Package all has the peers.
package all

import (
	"github.com/watchcache/watchcache/bench/peer"
	"github.com/watchcache/watchcache/bench/peer/gochannel"
	"github.com/watchcache/watchcache/bench/peer/handmade"
	"github.com/watchcache/watchcache/bench/peer/kube"
	"github.com/watchcache/watchcache/bench/peer/nats"
	"github.com/watchcache/watchcache/bench/peer/ours"
	"github.com/watchcache/watchcache/bench/peer/state"
)

// Peers are all of them; this library first.
var Peers = []peer.Peer{ours.Peer, handmade.Block, handmade.Drop, handmade.Ring, state.Peer, kube.Peer, nats.Peer, gochannel.Peer}
