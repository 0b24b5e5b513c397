//go:build !race

package gateway_test

// underRace is explained in race_test.go.
const underRace = false
