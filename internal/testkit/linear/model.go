package linear

import (
	"fmt"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// keyState is the state of one key. Porcupine keeps earlier states. So the functions that apply an
// operation return a new keyState, and leave the earlier keyState unchanged.
type keyState struct {
	log   []keyMessage // in the order of acceptance
	fence int64        // fence of the last write that was not late (Begin.Late)
	busy  string       // name of the message whose write is under way; "" = none
}

type keyMessage struct {
	name, id string // the id is empty until an operation shows it
	sequence int64  // 0 until an operation shows the number
	begun    bool   // a write of the message has begun
	// result of the last write; empty = the write is under way, or there was no write
	verdict Verdict
	fence   int64  // fence of the last write
	stage   string // final stage, set by a Finish or by a read that shows the message delivered
}

// isOver reports whether the next message of the key can be written.
func (m keyMessage) isOver() bool {
	return m.stage != "" || m.verdict == Taken || m.verdict == Torn
}

func (s keyState) findMessage(name string) int {
	return slices.IndexFunc(s.log, func(m keyMessage) bool { return m.name == name })
}

// replaceMessage returns a copy of the state with m at index i of the log.
func (s keyState) replaceMessage(i int, m keyMessage) keyState {
	s.log = slices.Clone(s.log)
	s.log[i] = m
	return s
}

// applyOperation returns the state after one operation. If the model allows the operation, the
// reason is empty.
func applyOperation(s keyState, input, output any) (next keyState, reason string) {
	switch in := input.(type) {
	case Post:
		return s.applyPost(in, output)
	case Begin:
		return s.applyBegin(in)
	case End:
		return s.applyEnd(in)
	case Finish:
		return s.applyFinish(in)
	case Read:
		return s.applyReads(in, output.([]string))
	case Rest:
		return s.applyRest()
	}

	return s, fmt.Sprintf("%T is no operation", input)
}

func (s keyState) applyPost(in Post, output any) (keyState, string) {
	answer, answered := output.(Receipt)
	sequence := answer.Sequence
	if learned, ok := output.(Learned); ok {
		sequence = learned.Sequence
	}

	i := s.findMessage(in.Name)
	switch {
	case i < 0 && answered && answer.Duplicate:
		return s, in.Name + " is called a duplicate, and was not filed before"
	case i < 0:
		if n := len(s.log); n > 0 && sequence != 0 && sequence <= s.log[n-1].sequence {
			return s, fmt.Sprintf("%s got number %d behind %d", in.Name, sequence,
				s.log[n-1].sequence)
		}

		s.log = append(slices.Clip(s.log),
			keyMessage{name: in.Name, id: answer.ID, sequence: sequence})
		return s, ""

	case !answered:
		return s, ""
	case !answer.Duplicate:
		return s, in.Name + " was filed twice"
	}

	m := s.log[i]
	if m.id != "" && m.id != answer.ID || m.sequence != 0 && m.sequence != answer.Sequence {
		return s, fmt.Sprintf("%s is %s (number %d), and was answered as %s (number %d)", in.Name,
			m.id, m.sequence, answer.ID, answer.Sequence)
	}

	m.id, m.sequence = answer.ID, answer.Sequence

	return s.replaceMessage(i, m), ""
}

func (s keyState) applyBegin(in Begin) (keyState, string) {
	i := s.findMessage(in.Name)
	switch {
	case i < 0:
		return s, in.Name + " is written, and was never filed"
	case in.Late:
		return s, ""
	case in.Fence < s.fence:
		return s, fmt.Sprintf("%s is written under fence %d, after %d", in.Name, in.Fence, s.fence)
	case s.busy != "":
		return s, fmt.Sprintf("%s is written while %s is", in.Name, s.busy)
	}

	if earlier := slices.IndexFunc(s.log[:i], func(m keyMessage) bool { return !m.isOver() }); earlier >= 0 {
		return s, fmt.Sprintf("%s is written before %s", in.Name, s.log[earlier].name)
	}

	if later := slices.IndexFunc(s.log[i+1:], func(m keyMessage) bool { return m.begun }); later >=
		0 {
		return s, fmt.Sprintf("%s is written after %s", in.Name, s.log[i+1+later].name)
	}

	m := s.log[i]
	switch {
	case m.id != "" && m.id != in.ID:
		return s, fmt.Sprintf("%s is %s, and is written under the Idempotency-Key %s", in.Name,
			m.id, in.ID)
	case m.stage != "":
		return s, fmt.Sprintf("%s is written, which is %s", in.Name, m.stage)
	case m.verdict == Taken && in.Fence <= m.fence:
		return s, in.Name + " is written again, without a higher fence"
	}

	m.id, m.begun, m.verdict, m.fence = in.ID, true, "", in.Fence
	s = s.replaceMessage(i, m)
	s.fence, s.busy = in.Fence, in.Name

	return s, ""
}

func (s keyState) applyEnd(in End) (keyState, string) {
	if in.Late {
		return s, ""
	}

	i := s.findMessage(in.Name)
	if i < 0 || s.busy != in.Name {
		return s, fmt.Sprintf("a write of %s ends, which had not begun", in.Name)
	}

	m := s.log[i]
	m.verdict = in.Verdict
	s = s.replaceMessage(i, m)
	s.busy = ""

	return s, ""
}

func (s keyState) applyFinish(in Finish) (keyState, string) {
	i := s.findMessage(in.Name)
	switch {
	case i < 0:
		return s, in.Name + " is " + in.Stage + ", and was never filed"
	case s.log[i].stage != "", s.busy == in.Name:
		return s, fmt.Sprintf("%s becomes %s, and was %q already or is being written",
			in.Name, in.Stage, s.log[i].stage)
	}

	m := s.log[i]
	m.stage = in.Stage

	return s.replaceMessage(i, m), ""
}

func (s keyState) applyReads(in Read, stages []string) (next keyState, reason string) {
	for i, name := range in.Names {
		if s, reason = s.applyRead(name, stages[i]); reason != "" {
			break
		}
	}
	return s, reason
}

func (s keyState) applyRead(name, stage string) (keyState, string) {
	i := s.findMessage(name)
	if i < 0 {
		return s, name + " is read as " + stage + ", and was never filed"
	}

	m := s.log[i]
	switch {
	case stage == m.stage:
		return s, ""
	case m.stage != "":
		if stage == "queued" || stage == "retrying" || stage == "delivered" {
			return s, fmt.Sprintf("%s is read as %s, and is %s", name, stage, m.stage)
		}

	case stage == "queued", stage == "retrying":
		return s, ""
	case stage == "delivered" && m.isOver() && s.busy != name:
		m.stage = stage
		return s.replaceMessage(i, m), ""
	}

	return s, fmt.Sprintf("%s is read as %q; its last write: %q", name, stage, m.verdict)
}

func (s keyState) applyRest() (keyState, string) {
	for _, m := range s.log {
		if !m.isOver() {
			return s, m.name + " has no end"
		}
	}
	return s, ""
}

func (s keyState) equals(o keyState) bool {
	return s.fence == o.fence && s.busy == o.busy && slices.Equal(s.log, o.log)
}

func (s keyState) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "fence %d", s.fence)
	if s.busy != "" {
		fmt.Fprintf(&b, ", writing %s", s.busy)
	}

	for _, m := range s.log {
		if m.stage != "delivered" {
			fmt.Fprintf(&b, "; %s %s%s", m.name, m.verdict, m.stage)
		}
	}

	return b.String()
}

// describeOperation returns an operation's line in the visualization.
func describeOperation(input, output any) string {
	switch in := input.(type) {
	case Post:
		if r, ok := output.(Receipt); ok {
			return fmt.Sprintf("post %s → %d%s", in.Name, r.Sequence,
				map[bool]string{true: " (duplicate)"}[r.Duplicate])
		}
		return fmt.Sprintf("post %s → ? (%d)", in.Name, output.(Learned).Sequence)

	case Begin:
		return fmt.Sprintf("write %s, fence %d%s", in.Name, in.Fence,
			map[bool]string{true: " (late)"}[in.Late])
	case End:
		return fmt.Sprintf("written %s: %s", in.Name, in.Verdict)
	case Finish:
		return in.Name + " becomes " + in.Stage
	case Read:
		return fmt.Sprintf("read %s → %s", strings.Join(in.Names, ", "),
			strings.Join(output.([]string), ", "))
	}

	return "rest"
}

var keyModel = porcupine.Model{
	Init: func() any { return keyState{} },
	Step: func(s, input, output any) (bool, any) {
		next, reason := applyOperation(s.(keyState), input, output)
		return reason == "", next
	},
	Equal:             func(a, b any) bool { return a.(keyState).equals(b.(keyState)) },
	DescribeOperation: describeOperation,
	DescribeState:     func(s any) string { return s.(keyState).String() },
}
