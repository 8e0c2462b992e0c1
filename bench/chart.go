package main

import (
	"fmt"
	"html"
	"strings"
)

const (
	chartWidth = 640
	labelWidth = 200
	valueWidth = 90
	rowHeight  = 34
)

// plot returns an SVG of one reading of all contestants: bars for the medians, with lines
// from the lowest to the highest value.
func (o outcome) plot() string {
	var most float64
	for _, c := range o.contestants {
		most = max(most, spreadOf(o.values(c.name, o.chart)).most)
	}
	var svg strings.Builder
	height := 44 + rowHeight*len(o.contestants)
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" `+
		`font-family="sans-serif" font-size="13">`+"\n", chartWidth, height)
	fmt.Fprintf(&svg, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", chartWidth, height)
	fmt.Fprintf(&svg, `<text x="12" y="24" font-weight="bold">%s: %s%s</text>`+"\n",
		html.EscapeString(o.name), html.EscapeString(o.chart), html.EscapeString(o.chartUnit()))
	for i, c := range o.contestants {
		svg.WriteString(row(c.name, spreadOf(o.values(c.name, o.chart)), most, 40+rowHeight*i))
	}
	svg.WriteString("</svg>\n")
	return svg.String()
}

func (o outcome) chartUnit() string {
	if unit := o.unit(bar{reading: o.chart, of: o.contestants[0].name}); unit != "" {
		return ", " + unit
	}
	return ""
}

func row(name string, s spread, most float64, y int) string {
	at := func(v float64) float64 { return labelWidth + (chartWidth-labelWidth-valueWidth)*v/most }
	color := "#9aa5b1"
	if strings.HasPrefix(name, ours) {
		color = "#2f6fde"
	}
	middle := float64(y) + 12
	var svg strings.Builder
	fmt.Fprintf(&svg, `<text x="%d" y="%.0f" text-anchor="end">%s</text>`+"\n", labelWidth-10, middle+4, html.EscapeString(name))
	fmt.Fprintf(&svg, `<rect x="%d" y="%d" width="%.1f" height="24" fill="%s"/>`+"\n", labelWidth, y, at(s.median)-labelWidth, color)
	fmt.Fprintf(&svg, `<path d="M%.1f %.1fv8m0 -4H%.1fm0 -4v8" stroke="#222"/>`+"\n", at(s.least), middle-4, at(s.most))
	fmt.Fprintf(&svg, `<text x="%.1f" y="%.0f">%s</text>`+"\n", at(s.most)+8, middle+4, number(s.median))
	return svg.String()
}
