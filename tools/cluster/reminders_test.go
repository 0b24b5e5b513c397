package main

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/tools/internal/supervise"
	"github.com/apiary-relay/apiary/tools/internal/topology"
)

// Replicas of ingest are killed while reminders (NIP-ER) are due: each comes once more, also those that somebody had in hand.
func TestRemindersOutliveKilledProcesses(t *testing.T) {
	r := start(t)
	r.publish("first")
	lines := r.listen()
	next := func() string {
		t.Helper()
		select {
		case line := <-lines:
			return line[strings.LastIndexByte(line, ' ')+1:]
		case <-time.After(patience):
			require.FailNow(t, "nothing came")
			return ""
		}
	}
	remind := func(name string, at time.Time) {
		t.Helper()
		output, err := r.client("publish", name, "--kind", "30300", "--tag", "d="+name, "--tag", "not_before="+strconv.FormatInt(at.Unix(), 10)).CombinedOutput()
		require.NoError(t, err, string(output))
		require.Equal(t, name, next(), "when it is written")
	}
	const reminders = 12
	awaited, due := map[string]bool{}, time.Now().Add(15*time.Second) // later than they are written, on whatever machine
	for i := range reminders {
		name := strconv.Itoa(i)
		remind(name, due.Add(time.Duration(i)*300*time.Millisecond))
		awaited[name] = true
	}
	for i := range reminders {
		name := next()
		require.True(t, awaited[name], "%s is due, and comes once", name)
		delete(awaited, name)
		if victim := map[int]string{0: "ingest-1", reminders / 2: "ingest-2"}[i]; victim != "" {
			before := r.process(victim, func(topology.ProcessState) bool { return true })
			require.NoError(t, syscall.Kill(before.PID, syscall.SIGKILL))
		}
	}
	for _, name := range []string{"ingest-1", "ingest-2"} {
		r.process(name, func(p topology.ProcessState) bool { return p.State == supervise.Running && p.Restarts == 1 })
	}
	remind("last", time.Now().Add(10*time.Second))
	require.Equal(t, "last", next(), "nothing has come twice meanwhile")
}
