package wire

import (
	"encoding/hex"
	"strconv"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

// AppendOK appends ["OK",<id>,<ok>,<msg>] (NIP-01). msg has its prefix already.
func AppendOK(dst []byte, id nostr.ID, ok bool, msg string) []byte {
	dst = append(dst, `["OK","`...)
	dst = hex.AppendEncode(dst, id[:])
	dst = append(dst, `",`...)
	dst = strconv.AppendBool(dst, ok)
	dst = append(dst, ',')
	dst = nostr.AppendString(dst, msg)
	return append(dst, ']')
}

// AppendEvent appends ["EVENT",<subID>,<raw>] (NIP-01). raw is an event object that was decoded before;
// its bytes go out as they are.
func AppendEvent(dst []byte, subID string, raw []byte) []byte {
	dst = append(dst, `["EVENT",`...)
	dst = nostr.AppendString(dst, subID)
	dst = append(dst, ',')
	dst = append(dst, raw...)
	return append(dst, ']')
}

// AppendEOSE appends ["EOSE",<subID>] (NIP-01).
func AppendEOSE(dst []byte, subID string) []byte {
	return append(nostr.AppendString(append(dst, `["EOSE",`...), subID), ']')
}

// AppendClosed appends ["CLOSED",<subID>,<msg>] (NIP-01). msg has its prefix already.
func AppendClosed(dst []byte, subID, msg string) []byte {
	dst = nostr.AppendString(append(dst, `["CLOSED",`...), subID)
	return append(nostr.AppendString(append(dst, ','), msg), ']')
}

// AppendNotice appends ["NOTICE",<msg>] (NIP-01).
func AppendNotice(dst []byte, msg string) []byte {
	return append(nostr.AppendString(append(dst, `["NOTICE",`...), msg), ']')
}

// AppendAuth appends ["AUTH",<challenge>], the relay's side of NIP-42.
func AppendAuth(dst []byte, challenge string) []byte {
	return append(nostr.AppendString(append(dst, `["AUTH",`...), challenge), ']')
}

// AppendCount appends ["COUNT",<subID>,{"count":<n>}] (NIP-45).
func AppendCount(dst []byte, subID string, n uint64) []byte {
	dst = nostr.AppendString(append(dst, `["COUNT",`...), subID)
	dst = append(dst, `,{"count":`...)
	return append(strconv.AppendUint(dst, n, 10), "}]"...)
}

// AppendCountHLL appends ["COUNT",<subID>,{"count":<n>,"hll":"<hex>"}], with the registers of NIP-45's
// HyperLogLog, one byte each; without registers it is AppendCount.
func AppendCountHLL(dst []byte, subID string, n uint64, registers []byte) []byte {
	dst = AppendCount(dst, subID, n)
	if len(registers) == 0 {
		return dst
	}
	dst = append(dst[:len(dst)-len("}]")], `,"hll":"`...)
	dst = hex.AppendEncode(dst, registers)
	return append(dst, `"}]`...)
}

// AppendClientEvent appends ["EVENT",<raw>], the client's side of EVENT (NIP-01).
func AppendClientEvent(dst, raw []byte) []byte {
	return append(append(append(dst, `["EVENT",`...), raw...), ']')
}

// AppendClientAuth appends ["AUTH",<raw>], the client's side of NIP-42.
func AppendClientAuth(dst, raw []byte) []byte {
	return append(append(append(dst, `["AUTH",`...), raw...), ']')
}

// AppendReq appends ["REQ",<subID>,<filters>…] (NIP-01).
func AppendReq(dst []byte, subID string, filters ...nostr.Filter) []byte {
	return appendFilters(append(dst, `["REQ",`...), subID, filters)
}

// AppendCountReq appends ["COUNT",<subID>,<filters>…], the client's side of NIP-45.
func AppendCountReq(dst []byte, subID string, filters ...nostr.Filter) []byte {
	return appendFilters(append(dst, `["COUNT",`...), subID, filters)
}

// AppendClose appends ["CLOSE",<subID>] (NIP-01).
func AppendClose(dst []byte, subID string) []byte {
	return append(nostr.AppendString(append(dst, `["CLOSE",`...), subID), ']')
}

func appendFilters(dst []byte, subID string, filters []nostr.Filter) []byte {
	dst = nostr.AppendString(dst, subID)
	for i := range filters {
		dst = filters[i].AppendJSON(append(dst, ','))
	}
	return append(dst, ']')
}
