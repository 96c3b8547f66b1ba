package dashboard

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Size of a plot in SVG units. The page stretches each plot to the available width.
const (
	plotWidth  = 600.0
	plotHeight = 140.0
)

// series is one line of a chart. A value of NaN is a gap in the line.
type series struct {
	Name   string
	Class  string
	Now    string // the value that the legend shows
	Line   string // SVG path of the line
	Dots   string // SVG path of the points that no line connects with another point
	Area   string // SVG path of the area between the line and the time axis
	values []float64
}

// chart is a plot over time, with its texts and SVG paths.
type chart struct {
	ID, Title, Unit string
	Summary         string // text for readers who cannot see the plot
	Series          []series
	Grid            []gridLine
	Columns         []column
	Times           []axisTime // the times below the plot
	Empty           bool       // no series has a value
	// start of the time step whose values the legend shows; zero = the present values
	NowFrom  time.Time
	NowUntil time.Time // end of the time step that starts at NowFrom
}

type gridLine struct {
	Y     string
	Label string
}

// axisTime is a time below the plot. Text is in UTC. If the reader chooses local times, the script
// of the page replaces Text. Form is the precision of Text, for the script: "minute" or "day".
type axisTime struct {
	At         time.Time
	Text, Form string
}

// column has the values of all series at one time, for the tooltip and for the table of figures.
type column struct {
	X, Width string
	At       time.Time
	Time     string
	Texts    []string
	Title    string
}

// axis converts values to vertical positions in the plot.
type axis struct {
	top   float64
	log   bool // true = logarithmic; a value below 1 is drawn as 1
	label func(float64) string
	mark  func(float64) string // label of a grid line
}

func (a axis) scaleY(v float64) float64 {
	share := v / a.top
	if a.log {
		share = math.Log10(max(v, 1)) / math.Log10(a.top)
	}
	return plotHeight * (1 - min(max(share, 0), 1))
}

// linearAxis returns an axis from 0 to a round number that is at least the highest value.
func linearAxis(label func(float64) string, all ...series) axis {
	top := maxValue(all)
	if top <= 0 {
		top = 1
	}

	step := math.Pow(10, math.Floor(math.Log10(top)))
	for _, n := range []float64{1, 2, 4, 5, 8, 10} {
		if n*step >= top {
			return axis{top: max(n*step, 2), label: label, mark: plainNumber}
		}
	}

	return axis{top: 10 * step, label: label, mark: plainNumber}
}

// logAxis returns a logarithmic axis for milliseconds.
func logAxis(all ...series) axis {
	top := max(math.Pow(10, math.Ceil(math.Log10(max(maxValue(all), 1)))), 100)
	return axis{top: top, log: true, label: formatMilliseconds, mark: decadeLabel}
}

// decadeLabel formats a number of milliseconds that is a power of ten.
func decadeLabel(v float64) string {
	if v < 1000 {
		return number0(v) + " ms"
	}
	return number0(v/1000) + " s"
}

func formatMilliseconds(v float64) string { return spanText(time.Duration(v * 1e6)) }

func maxValue(all []series) float64 {
	top := 0.0
	for _, s := range all {
		for _, v := range s.values {
			if v > top { // the comparison is false for NaN
				top = v
			}
		}
	}

	return top
}

func (a axis) gridLines() []gridLine {
	var lines []gridLine
	add := func(v float64) {
		lines = append(lines,
			gridLine{formatCoordinate(a.scaleY(v)), a.mark(v)})
	}

	if a.log {
		for v := a.top; v >= 1; v /= 10 {
			add(v)
		}
		return lines
	}

	for _, share := range []float64{1, 0.5, 0} {
		add(a.top * share)
	}

	return lines
}

// drawChart returns a chart of the series. Each series has one value for each of the times.
func drawChart(id, title, unit string, a axis, times []time.Time, all []series) chart {
	c := chart{ID: id, Title: title, Unit: unit, Grid: a.gridLines(), Empty: true}
	for i := range all {
		s := &all[i]
		s.Line, s.Dots, s.Area = s.buildPaths(a)
		c.Empty = c.Empty && s.Line == ""
	}

	c.Series = all
	c.Columns = buildColumns(a, times, all)
	if len(times) > 1 {
		layout, form := "15:04", "minute"
		if times[len(times)-1].Sub(times[0]) > 36*time.Hour {
			layout, form = "2 Jan", "day"
		}

		for _, i := range []int{0, (len(times) - 1) / 2, len(times) - 1} {
			c.Times = append(c.Times, axisTime{times[i], times[i].UTC().Format(layout), form})
		}
	}

	c.Summary = summarizeChart(title, unit, a, all)

	return c
}

func (s *series) buildPaths(a axis) (line, dots, area string) {
	var l, alone, fill strings.Builder
	first, last := -1, -1
	closeArea := func() {
		if first >= 0 && first == last {
			fmt.Fprintf(&alone, "M%s %sh0.1 ", formatCoordinate(s.scaleX(first)),
				formatCoordinate(a.scaleY(s.values[first])))
		}

		if first >= 0 {
			fmt.Fprintf(&fill, "L%s %s L%s %s Z ", formatCoordinate(s.scaleX(last)),
				formatCoordinate(plotHeight),
				formatCoordinate(s.scaleX(first)), formatCoordinate(plotHeight))
		}

		first = -1
	}

	for i, v := range s.values {
		if math.IsNaN(v) {
			closeArea()
			continue
		}

		mark := "L"
		if first < 0 {
			mark, first = "M", i
		}

		point := fmt.Sprintf("%s%s %s ", mark, formatCoordinate(s.scaleX(i)),
			formatCoordinate(a.scaleY(v)))
		l.WriteString(point)
		fill.WriteString(point)
		last = i
	}

	closeArea()

	return strings.TrimSpace(l.String()), strings.TrimSpace(alone.String()),
		strings.TrimSpace(fill.String())
}

func (s *series) scaleX(i int) float64 {
	return plotWidth * (float64(i) + 0.5) / float64(len(s.values))
}

func buildColumns(a axis, times []time.Time, all []series) []column {
	var out []column
	width := plotWidth / float64(max(len(times), 1))
	for i, at := range times {
		c := column{X: formatCoordinate(width * float64(i)), Width: formatCoordinate(width),
			At: at, Time: at.UTC().Format("2 Jan 15:04")}
		words := []string{c.Time}
		for _, s := range all {
			text := "–"
			if !math.IsNaN(s.values[i]) {
				text = a.label(s.values[i])
			}
			c.Texts = append(c.Texts, text)
			words = append(words, s.Name+" "+text)
		}

		c.Title = strings.Join(words, "\n")
		out = append(out, c)
	}

	return out
}

func summarizeChart(title, unit string, a axis, all []series) string {
	words := []string{}
	for _, s := range all {
		words = append(words, fmt.Sprintf("%s: now %s, at most %s", s.Name, s.Now,
			a.label(maxValue([]series{s}))))
	}
	return fmt.Sprintf("%s, %s. %s.", title, unit, strings.Join(words, "; "))
}

func plainNumber(v float64) string {
	if v < 1000 {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return formatCount(int64(v))
}

// number0 formats a number without decimals.
func number0(v float64) string { return strconv.FormatFloat(v, 'f', 0, 64) }

func formatCoordinate(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }
