package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
)

// finish prints what is left of a table and, as every benchmark's last line, its figures.
func finish(out io.Writer, table *tabwriter.Writer, result any) error {
	if err := table.Flush(); err != nil {
		return err
	}
	line, err := json.Marshal(result)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "RESULT %s\n", line)
	return err
}
