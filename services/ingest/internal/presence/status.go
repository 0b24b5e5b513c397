package presence

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

const (
	// maxStatus is the length of a status in bytes; the rest is cut off.
	maxStatus = 128
	// offline is the status of those who are not there, and of those who say so.
	offline = "offline"
)

// statusOf reads the status out of the content of an announcement: the text itself, or the member status of a JSON
// object. It may be empty, which announces nothing.
func statusOf(content string) string {
	status := strings.TrimSpace(content)
	if strings.HasPrefix(status, "{") {
		var object struct {
			Status string `json:"status"`
		}
		if json.Unmarshal([]byte(status), &object) == nil {
			status = strings.TrimSpace(object.Status)
		}
	}
	if len(status) <= maxStatus {
		return status
	}
	end := maxStatus
	for end > 0 && !utf8.RuneStart(status[end]) {
		end--
	}
	return status[:end]
}

func isOnline(status string) bool { return status != "" && status != offline }
