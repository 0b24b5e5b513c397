// Package turns has a queue in which those who wait take turns, so that who has much waiting does not make the others wait
// for all of it. It bounds nothing and wakes nobody: that is its owner's.
package turns

import "slices"

// Queue holds values by whom they are of. Those of one key keep their order; keys take turns, one value each. The zero value
// is empty. It is not safe for concurrent use.
type Queue[K comparable, V any] struct {
	lines map[K][]V // none is empty
	order []K       // each key that has a line, once
}

// Add appends a value to the line of its key.
func (q *Queue[K, V]) Add(of K, value V) {
	if q.lines == nil {
		q.lines = make(map[K][]V)
	}
	line := q.lines[of]
	if len(line) == 0 {
		q.order = append(q.order, of)
	}
	q.lines[of] = append(line, value)
}

// Empty reports whether nothing waits.
func (q *Queue[K, V]) Empty() bool { return len(q.order) == 0 }

// Next returns whose turn it is. It panics if the queue is empty.
func (q *Queue[K, V]) Next() V { return q.lines[q.order[0]][0] }

// Take takes out what Next returns. It panics if the queue is empty.
func (q *Queue[K, V]) Take() V {
	who := q.order[0]
	line := q.lines[who]
	value := line[0]
	clear(line[:1]) // what has been taken is not kept by the line
	q.order = q.order[1:]
	if len(line) == 1 {
		delete(q.lines, who)
		if len(q.order) == 0 {
			q.order = nil // and its memory
		}
		return value
	}
	q.lines[who], q.order = line[1:], append(q.order, who)
	return value
}

// Remove takes out what is unwanted and returns it, that of each key in its order.
func (q *Queue[K, V]) Remove(unwanted func(V) bool) (removed []V) {
	q.order = slices.DeleteFunc(q.order, func(who K) bool {
		q.lines[who] = slices.DeleteFunc(q.lines[who], func(v V) bool {
			if unwanted(v) {
				removed = append(removed, v)
				return true
			}
			return false
		})
		if len(q.lines[who]) > 0 {
			return false
		}
		delete(q.lines, who)
		return true
	})
	return removed
}
