package main

const (
	legendLine = 18 // pixels
	legendSize = 11
	legendMost = 3 // lines
)

// item is a name in a legend.
type item struct {
	x           float64
	name, color string
}

// layLegend spreads the names of the lines of a panel over rows, as far as there is room.
func layLegend(a answer, width float64) (rows [][]item) {
	if len(a.lines) == 0 {
		return [][]item{{{name: "No data", color: dim}}}
	}
	x := width // so that the first one begins a row
	for i, l := range a.lines {
		wide := 20 + textWidth(l.name, legendSize) + 14
		if x+wide-14 > width {
			if len(rows) == legendMost {
				return rows
			}
			rows, x = append(rows, nil), 0
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], item{x, l.name, palette[i%len(palette)]})
		x += wide
	}
	return rows
}

func drawLegend(v *svg, x, y float64, rows [][]item) {
	for i, row := range rows {
		y := y + float64(i)*legendLine
		for _, one := range row {
			v.box(box{x + one.x, y, 13, 3}, one.color, one.color)
			v.text(x+one.x+20, y+6, legendSize, dim, plain, one.name)
		}
	}
}
