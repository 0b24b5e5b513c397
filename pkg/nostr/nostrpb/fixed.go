package nostrpb

import "github.com/apiary-relay/apiary/pkg/fault"

// Fixed takes an id or a key from a message: 32 bytes. The error is Invalid and names the message's field.
func Fixed[K ~[32]byte](b []byte, field string) (K, error) {
	if len(b) != len(K{}) {
		return K{}, fault.New(fault.Invalid, field+" must be 32 bytes")
	}
	return K(b), nil
}
