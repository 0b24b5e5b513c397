// Package fanout matches committed events against the live subscriptions of gateways.
//
// It owns soft state only: the subscriptions that gateways have registered on their Attach streams, an
// index of their filters, and how far each partition has been consumed. A node may die at any moment: its
// gateways register elsewhere with the last position they know, and are served from there. Any node can
// serve any partition.
//
// It must never skip an event for a subscription without saying Lost, never deliver one twice on a
// handle, never deliver what the principal may not read, and never let a gateway that stalls, or a
// partition that waits for search, delay others.
//
// # Who does what
//
//	stream receiver ──commands──▶ partition (one goroutine each) ──deliveries──▶ link ──▶ stream sender
//	                                 ▲             │    ▲
//	                     bus, decoded┘             └────┘ access questions to search
//
// The receiver turns commands into calls on the link (who exists) and on partitions (who is filed).
// Partitions never block on a link. The sender is the RPC's own goroutine. See internal/partition for
// what makes delivery exact and internal/deliver for what happens when a gateway does not keep up.
//
// # What a gateway can rely on
//
//   - Per partition and stream, what follows Attached comes in the order of the stream, except that a
//     handle with resume_after is told what it missed while others are told what is new. The first
//     watermark of the partition after its Attached says that this is over.
//   - A Lost comes behind everything that was delivered to the handle, and nothing comes after it.
//   - A node that has not heard of the bus for Config.BusSilence says so, and when it has again. It serves on, only late.
//   - A position with index 4294967295 is after the whole message.
//   - Ephemeral events are owed while their stream holds them (60 s): what has gone, or went with a
//     restart of the memory stream, is skipped without Lost. Committed events never are.
package fanout
