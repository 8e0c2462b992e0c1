package main

import (
	"fmt"
	"html"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	margin     = 12
	barsWidth  = 370
	barHeight  = 16
	headHeight = 40
	rowHeight  = 36
	glyph      = 7.8 // px, at most, of a letter of 13 px on average

	// Colours that can be read on white and on dark.
	inkColor   = "#6e7781"
	oursColor  = "#2f81f7"
	otherColor = "#8c959f"

	// broken is how many times the largest of ours a bar may be, and is drawn with a break beyond that: a floor
	// must not hide what the picture is about.
	broken = 3
)

// chartRow is one bar of a picture.
type chartRow struct {
	name, unit string
	spread
}

// figure is a row of a table of the report.
var figure = regexp.MustCompile(`(?m)^\| (.+?) \| (.+?) \| ([-\d.,]+) ?(\S*) \| (-?[\d.,]+)–(-?[\d.,]+) \| \d+ \|$`)

// chartRows reads from an experiment's section of the report what a picture of a reading shows.
func chartRows(section, reading string) (list []chartRow) {
	value := func(text string) float64 {
		v, _ := strconv.ParseFloat(strings.ReplaceAll(text, ",", ""), 64) // the pattern finds digits
		return v
	}
	for _, m := range figure.FindAllStringSubmatch(section, -1) {
		if m[2] == reading {
			list = append(list, chartRow{m[1], m[4], spread{value(m[3]), value(m[5]), value(m[6])}})
		}
	}
	return list
}

// plot returns an SVG of one reading in a section of the report: bars for the medians, with lines from the lowest to
// the highest value below them.
func plot(name, section, reading string) string {
	rows := chartRows(section, reading)
	labels := 0.0
	for _, r := range rows {
		labels = max(labels, textWidth(r.name))
	}
	scale := scaleOf(rows)
	left := 2*margin + labels
	width, height := int(math.Ceil(left+barsWidth+margin+textWidth("1,000,000"))), headHeight+rowHeight*len(rows)
	var svg strings.Builder
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" `+
		`font-family="sans-serif" font-size="13" fill="%s">`+"\n", width, height, inkColor)
	title := name + ": " + reading
	if len(rows) > 0 && rows[0].unit != "" {
		title += ", " + rows[0].unit
	}
	fmt.Fprintf(&svg, `<text x="%d" y="24" font-weight="bold">%s</text>`+"\n", margin, html.EscapeString(title))
	for i, r := range rows {
		svg.WriteString(r.draw(left, float64(headHeight+rowHeight*i), scale))
	}
	svg.WriteString("</svg>\n")
	return svg.String()
}

// textWidth is how wide a text may be.
func textWidth(text string) float64 { return glyph * float64(utf8.RuneCountInString(text)) }

// scaleOf is the value of the longest bar: the largest one that needs no break.
func scaleOf(rows []chartRow) (scale float64) {
	limit := 0.0
	for _, r := range rows {
		if strings.HasPrefix(r.name, ours) {
			limit = max(limit, broken*r.most)
		}
	}
	for _, r := range rows {
		if limit == 0 || r.most <= limit {
			scale = max(scale, r.most)
		}
	}
	return scale
}

func (r chartRow) draw(left, top, scale float64) string {
	color := otherColor
	if strings.HasPrefix(r.name, ours) {
		color = oursColor
	}
	at := func(v float64) float64 { return left + barsWidth*v/scale }
	var svg strings.Builder
	fmt.Fprintf(&svg, `<text x="%.1f" y="%.1f" text-anchor="end">%s</text>`+"\n", left-margin, top+13, html.EscapeString(r.name))
	end := at(r.most)
	if r.most > scale {
		end = left + barsWidth
		gap := end - 40
		fmt.Fprintf(&svg, `<path d="M%.1f %.1fH%.1fl-6 %dH%.1fz" fill="%s"/>`+"\n", left, top, gap, barHeight, left, color)
		fmt.Fprintf(&svg, `<path d="M%.1f %.1fH%.1fv%dH%.1fz" fill="%s"/>`+"\n", gap+6, top, end, barHeight, gap, color)
	} else {
		fmt.Fprintf(&svg, `<rect x="%.1f" y="%.1f" width="%.1f" height="%d" fill="%s"/>`+"\n", left, top, at(r.median)-left, barHeight, color)
		fmt.Fprintf(&svg, `<path d="M%.1f %.1fv6m0 -3H%.1fm0 -3v6" stroke="%s" fill="none"/>`+"\n",
			at(r.least), top+barHeight+2, at(r.most), inkColor)
	}
	fmt.Fprintf(&svg, `<text x="%.1f" y="%.1f">%s</text>`+"\n", end+8, top+13, number(r.median))
	return svg.String()
}
