// Package deliver holds what a fan-out node has for one gateway until its stream takes it.
//
// It owns the Link: the bounded outbound queue of a gateway's stream and the gateway's handles. Pushing
// never blocks, so that a stalled gateway delays nobody: a delivery for which there is no room loses the
// handles it was for. Their Lost needs no room and is sent behind what was queued for them before, so
// that the gateway knows exactly what to resume from. A handle that was lost, replaced or forgotten gets
// nothing any more, decided under the same lock that orders the queue.
//
// Partitions push, the stream's receiver registers and forgets handles, the stream's sender takes
// batches. All methods are safe for concurrent use. The package knows no gRPC stream, no bus and no
// filters, and must never call back.
package deliver
