package store

import (
	"fmt"
	"strconv"
	"strings"

	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
)

// Snapshot is what a query could see.
type Snapshot struct {
	// DatabaseID identifies the Postgres cluster whose transactions the others are.
	DatabaseID uint64
	// Xmin: every transaction below it had ended. Xmax: none at or above it had begun. InProgress are
	// those between that had not ended.
	Xmin, Xmax uint64
	InProgress []uint64
	// TakenAt is when it was taken, or a moment later: microseconds since the Unix epoch by the database's
	// clock.
	TakenAt int64
}

// Proto returns the snapshot's message.
func (s *Snapshot) Proto() *commonv1.Snapshot {
	return &commonv1.Snapshot{DatabaseId: s.DatabaseID, Xmin: s.Xmin, Xmax: s.Xmax, InProgress: s.InProgress, TakenAt: s.TakenAt}
}

// parseSnapshot reads the text form of pg_snapshot: "xmin:xmax:xip,xip".
func parseSnapshot(databaseID uint64, text string) (Snapshot, error) {
	bad := fmt.Errorf("malformed snapshot %q", text)
	s := Snapshot{DatabaseID: databaseID}
	fields := strings.Split(text, ":")
	if len(fields) != 3 {
		return Snapshot{}, bad
	}
	var err error
	if s.Xmin, err = strconv.ParseUint(fields[0], 10, 64); err != nil {
		return Snapshot{}, bad
	}
	if s.Xmax, err = strconv.ParseUint(fields[1], 10, 64); err != nil {
		return Snapshot{}, bad
	}
	if fields[2] == "" {
		return s, nil
	}
	for xip := range strings.SplitSeq(fields[2], ",") {
		xid, err := strconv.ParseUint(xip, 10, 64)
		if err != nil {
			return Snapshot{}, bad
		}
		s.InProgress = append(s.InProgress, xid)
	}
	return s, nil
}
