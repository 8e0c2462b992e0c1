package dashboard

import (
	"math"
	"strconv"
	"strings"
)

// Text is a value as a panel shows it, in its unit.
func (f Field) Text(value float64) string {
	number := strconv.FormatFloat(value, 'f', -1, 64)
	for _, m := range f.Mappings {
		if to, is := m.Options[number]; is {
			return to.Text
		}
	}
	switch {
	case math.IsNaN(value) || math.IsInf(value, 0):
		return "-"
	case f.Unit == "s":
		return duration(value)
	}
	suffix, _ := strings.CutPrefix(f.Unit, "suffix:")
	if suffix == f.Unit {
		suffix = ""
	}
	return short(value) + suffix
}

// duration is a number of seconds in the unit that suits it.
func duration(seconds float64) string {
	size := math.Abs(seconds)
	switch {
	case size == 0:
		return "0 s"
	case size < 1e-3:
		return digits(seconds*1e6) + " µs"
	case size < 1:
		return digits(seconds*1e3) + " ms"
	case size < 120:
		return digits(seconds) + " s"
	case size < 7200:
		return digits(seconds/60) + " min"
	}
	return digits(seconds/3600) + " h"
}

// short is a number with a letter for thousands or millions.
func short(value float64) string {
	switch size := math.Abs(value); {
	case size >= 1e6:
		return digits(value/1e6) + " M"
	case size >= 1e4:
		return digits(value/1e3) + " K"
	}
	return digits(value)
}

// digits is a number with three digits that count.
func digits(value float64) string {
	if value == 0 {
		return "0"
	}
	places := max(0, 2-int(math.Floor(math.Log10(math.Abs(value)))))
	text := strconv.FormatFloat(value, 'f', min(places, 3), 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}
