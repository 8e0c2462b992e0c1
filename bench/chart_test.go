package main

import (
	"encoding/xml"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "draw the pictures of docs/benchmarks anew")

// drawn is what a picture shows.
type drawn struct {
	Width  float64 `xml:"width,attr"`
	Height float64 `xml:"height,attr"`
	Texts  []struct {
		X, Y   float64 `xml:",attr"`
		Anchor string  `xml:"text-anchor,attr"`
		Text   string  `xml:",chardata"`
	} `xml:"text"`
	Rects []struct {
		Width float64 `xml:"width,attr"`
		Fill  string  `xml:"fill,attr"`
	} `xml:"rect"`
	Paths []struct {
		D string `xml:"d,attr"`
	} `xml:"path"`
}

func read(t *testing.T, svg string) (d drawn) {
	t.Helper()
	svg = regexp.MustCompile(`<text x=("[^"]*") y=`).ReplaceAllString(svg, "<text X=$1 Y=") // as the fields are named
	require.NoError(t, xml.Unmarshal([]byte(svg), &d), "%s", svg)
	return d
}

func section(rows ...string) string {
	return "## x\n\nwhat\n\n| | | median | min–max | rounds |\n| --- | --- | --- | --- | --- |\n" + strings.Join(rows, "\n") + "\n"
}

func TestNothingOfAPictureIsOutsideOfIt(t *testing.T) {
	for name, text := range map[string]string{
		"short names":              section("| redisdelay | rate | 5 msg/s | 4–6 | 5 |"),
		"a long name":              section("| redisdelay, 50 more consumers | rate | 2.65 ms | 2.63–2.88 | 3 |", "| redisdelay | rate | 2.28 ms | 2.04–3.18 | 3 |"),
		"a very long name & signs": section("| " + strings.Repeat("redisdelay <&> ", 8) + "| rate | 2.65 ms | 2.63–2.88 | 3 |"),
		"a large floor":            section("| redisdelay | rate | 150,000 msg/s | 140,000–160,000 | 5 |", "| floor | rate | 9,576,678 msg/s | 1,357,421–9,702,854 | 5 |"),
		"no unit, zero":            section("| redisdelay | rate | 0 | 0–1 | 5 |"),
	} {
		t.Run(name, func(t *testing.T) {
			svg := plot("x", text, "rate")
			d := read(t, svg)
			require.Len(t, d.Texts, 1+2*len(chartRows(text, "rate")))
			for _, text := range d.Texts {
				left, right := text.X, text.X+textWidth(text.Text)
				if text.Anchor == "end" {
					left, right = text.X-textWidth(text.Text), text.X
				}
				assert.GreaterOrEqual(t, left, 0.0, text.Text)
				assert.LessOrEqual(t, right, d.Width, text.Text)
				assert.Less(t, text.Y+4, d.Height, text.Text)
			}
			for _, m := range regexp.MustCompile(`[MH](-?[\d.]+)`).FindAllStringSubmatch(svg, -1) {
				x, err := strconv.ParseFloat(m[1], 64)
				require.NoError(t, err)
				assert.True(t, 0 <= x && x <= d.Width, svg)
			}
		})
	}
}

func TestAFloorDoesNotHideWhatThePictureIsAbout(t *testing.T) {
	d := read(t, plot("x", section(
		"| redisdelay | rate | 100,000 msg/s | 90,000–110,000 | 5 |",
		"| peer | rate | 200,000 msg/s | 190,000–220,000 | 5 |",
		"| floor | rate | 1,576,678 msg/s | 1,357,421–1,702,854 | 5 |",
	), "rate"))
	require.Len(t, d.Rects, 2, "the floor's bar has a break")
	assert.InDelta(t, barsWidth*100/220.0, d.Rects[0].Width, 1)
	assert.Equal(t, oursColor, d.Rects[0].Fill)
	assert.Equal(t, "1,576,678", d.Texts[len(d.Texts)-1].Text)
}

// TestPicturesCanBeReadOnWhiteAndOnDark: text has a contrast of 4 with both, bars of 2.5, and there is no background.
func TestPicturesCanBeReadOnWhiteAndOnDark(t *testing.T) {
	for color, least := range map[string]float64{inkColor: 4, oursColor: 2.5, otherColor: 2.5} {
		for _, ground := range []string{"#ffffff", "#0d1117"} {
			a, b := luminance(t, color), luminance(t, ground)
			assert.GreaterOrEqual(t, (max(a, b)+0.05)/(min(a, b)+0.05), least, "%s on %s", color, ground)
		}
	}
	svg := plot("x", section("| redisdelay | rate | 5 msg/s | 4–6 | 5 |"), "rate")
	for _, m := range regexp.MustCompile(`"(#\w+)"`).FindAllStringSubmatch(svg, -1) {
		assert.Contains(t, []string{inkColor, oursColor, otherColor}, m[1])
	}
}

// luminance is that of WCAG 2.
func luminance(t *testing.T, color string) float64 {
	t.Helper()
	var r, g, b int
	_, err := fmt.Sscanf(color, "#%02x%02x%02x", &r, &g, &b)
	require.NoError(t, err)
	part := func(v int) float64 {
		if v <= 10 {
			return float64(v) / 255 / 12.92
		}
		return math.Pow((float64(v)/255+0.055)/1.055, 2.4)
	}
	return 0.2126*part(r) + 0.7152*part(g) + 0.0722*part(b)
}

// TestThePicturesShowTheFiguresBesideThem with -update draws them.
func TestThePicturesShowTheFiguresBesideThem(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(documentation, "README.md"))
	require.NoError(t, err)
	pictures := 0
	for _, e := range experiments() {
		_, after, found := strings.Cut(string(text), "\n## "+e.name+"\n")
		if e.chart == "" || !found {
			continue
		}
		after, _, _ = strings.Cut(after, "\n## ")
		svg, file := plot(e.name, after, e.chart), filepath.Join(documentation, e.name+".svg")
		if *update {
			require.NoError(t, os.WriteFile(file, []byte(svg), 0o644))
		}
		got, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Equal(t, svg, string(got), "go test . -update draws it anew")
		pictures++
	}
	assert.NotZero(t, pictures)
}
