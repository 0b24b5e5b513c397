package policy

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

// Bounds of a diff.
const (
	maxDiff   = 61_440 // bytes of content
	minCommit = 7      // hexadecimal digits, as git abbreviates
)

// checkDiff refuses a diff (kind 40008) that clients could not attribute: it names a repository and a commit, and what
// else it says of them has to be readable.
func checkDiff(ev *nostr.Event) Verdict {
	repo, _ := ev.Tags.First("repo")
	commit, _ := ev.Tags.First("commit")
	parent, hasParent := ev.Tags.First("parent-commit")
	pr, hasPR := ev.Tags.First("pr")
	switch {
	case len(ev.Content) > maxDiff:
		return invalid(fmt.Sprintf("diff exceeds maximum size of %d bytes (got %d)", maxDiff, len(ev.Content)))
	case !isWebURL(repo):
		return invalid("diff must have a repo tag with an http or https URL")
	case !isCommit(commit):
		return invalid("diff must have a commit tag with at least 7 hexadecimal digits")
	case hasParent && !isCommit(parent):
		return invalid("parent-commit must have at least 7 hexadecimal digits")
	case !hasBranches(ev.Tags):
		return invalid("branch must have a source and a target")
	case hasPR && !isPositive(pr):
		return invalid("pr must be a positive integer")
	}
	return Verdict{}
}

func isWebURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != ""
}

func isCommit(s string) bool {
	return len(s) >= minCommit && strings.Trim(s, "0123456789abcdefABCDEF") == ""
}

func isPositive(s string) bool {
	n, err := strconv.ParseUint(s, 10, 63)
	return err == nil && n > 0
}

// hasBranches reports whether every branch tag names two.
func hasBranches(tags nostr.Tags) bool {
	for t := range tags.All("branch") {
		if len(t) < 3 || t[1] == "" || t[2] == "" {
			return false
		}
	}
	return true
}
