package submit

import "slices"

// turns is what waits for a stream. The submissions of one connection keep their order; connections take turns,
// one submission each, so that who has much waiting does not make the others wait for all of it. The zero value is
// empty. Guarded by its stream's mu.
type turns struct {
	lines map[uint64][]*job // by affinity; none is empty
	order []uint64          // each affinity that has a line, once
}

// add appends j to the line of its connection.
func (t *turns) add(j *job) {
	if t.lines == nil {
		t.lines = make(map[uint64][]*job)
	}
	line := t.lines[j.Affinity]
	if len(line) == 0 {
		t.order = append(t.order, j.Affinity)
	}
	t.lines[j.Affinity] = append(line, j)
}

func (t *turns) empty() bool { return len(t.order) == 0 }

// next returns whose turn it is; there must be one.
func (t *turns) next() *job { return t.lines[t.order[0]][0] }

// take takes out what next returns.
func (t *turns) take() *job {
	who := t.order[0]
	line := t.lines[who]
	t.order = t.order[1:]
	if len(line) == 1 {
		delete(t.lines, who)
		if len(t.order) == 0 {
			t.order = nil // and its memory
		}
		return line[0]
	}
	t.lines[who], t.order = line[1:], append(t.order, who)
	return line[0]
}

// remove takes out what is unwanted and returns it.
func (t *turns) remove(unwanted func(*job) bool) (removed []*job) {
	t.order = slices.DeleteFunc(t.order, func(who uint64) bool {
		t.lines[who] = slices.DeleteFunc(t.lines[who], func(j *job) bool {
			if unwanted(j) {
				removed = append(removed, j)
				return true
			}
			return false
		})
		if len(t.lines[who]) > 0 {
			return false
		}
		delete(t.lines, who)
		return true
	})
	return removed
}
