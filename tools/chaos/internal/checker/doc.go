// Package checker knows everything that was published, who could read it when, and what every subscription got,
// and says what was wrong: missed, duplicated, forbidden or stray deliveries, closes that nothing explains, and how
// long the pauses were.
//
// It looks at a relay from outside and knows only what clients know: when something was sent, when the OK for it
// came, and what arrived. A change of the relay's state happens at an unknown moment between those two. So the
// checker calls something wrong only when it is wrong whatever that moment was, and everything that may be right
// is right. All times are on one clock, that of the Log.
//
// # What counts as what
//
// A Subscription is what a user wants to see: one topic, for as long as the run lasts. It is asked for again
// whenever a connection or the relay ended it; each time, a Period, is one REQ on one connection.
//
//   - Missed: an event was acknowledged (P1), the subscriber was entitled, and the subscription never got it, in
//     no period. Entitled means: certainly allowed to read from before the event was sent until the end of the run;
//     or certainly allowed from before some REQ was sent until its EOSE, when the event had been acknowledged before
//     that REQ and is in its time: then it is in the history. Of what was sent to somebody who was removed shortly
//     afterwards nothing is owed: such an event may come and need not (DESIGN section 6). An event whose OK never came
//     may come and need not either.
//   - Excused: an ephemeral event is in no history, and its stream holds it in memory for a minute (DESIGN section 8). It is
//     owed to a subscription that had had its EOSE when it was sent and whose reader was entitled until the end of the run,
//     unless the subscription, its connection or NATS ended after it was sent and within the minute after its OK: then it
//     may have been lost on its way. Such a delivery that never came is excused and counted; but not if another one that
//     was sent after its OK came before that end, since streams are read in order: then it was missed. Who had no
//     subscription when it was sent is owed nothing. An OK false, as while ingest is cut off from NATS, excuses nothing: the
//     event is sent again, and owed once its OK is true.
//   - Duplicated: an event came again within one period, be it twice in the history, twice live, or in both halves
//     (P3). A new period begins anew: an event that came before is what the client asked for again with its
//     since, and it is the client's to notice that it knows it.
//   - Forbidden: an event came to somebody who certainly was not allowed to have it (P4). Of an event that came live,
//     after EOSE: its reader was no member of the private channel at any moment between the sending of the event and its
//     arrival. So what was sent before a removal's OK may come after it, and what was sent after the OK never may; who is
//     a member again by then may read what was said meanwhile, so that it comes is no leak. Of one in the history: its
//     reader was no member at any moment between the REQ and the arrival.
//   - Stray: an event came that the subscription did not ask for, be it that it is of another topic or that the
//     subscription had been closed, or one that nobody in the run has published, or an ephemeral one in a history.
//   - Unexplained closes: the relay ended a subscription after its EOSE, or a connection, and nothing that was done to
//     the cluster explains it. A CLOSED is explained by the removal of its reader; "lagged" never is, since nothing
//     here loses what a stream still holds. The end of a connection is explained when its own gateway was killed or told
//     to leave while it was open, whatever the close code. A REQ that is refused before its EOSE is no close: the client
//     asks again, and what it misses counts as missed.
//   - Pause: how long an event that was owed had been acknowledged before it first came. After the kill of a fan-out
//     node only the time since the kill counts; the longest such wait of a subscription until the next fault is its
//     pause for that kill. A kill counts that came while nothing else was broken, nor shortly before: else the pause
//     would not be of its making. Who was not entitled all the time has no pauses.
//
// A Log may be used by any goroutine, a Subscription by any too; Check may be called while both are being written,
// to see whether everything has come yet.
package checker
