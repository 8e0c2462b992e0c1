package main

import (
	"bytes"
	"fmt"
	"html"
	"unicode/utf8"
)

// Weights of texts.
const (
	plain = 400
	bold  = 500
)

// svg is a picture in the making.
type svg struct{ buffer bytes.Buffer }

func newSVG(width, height float64) *svg {
	v := &svg{}
	v.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]g %[2]g" width="%[1]g" height="%[2]g" `+
		`font-family="Inter, Roboto, Helvetica, Arial, sans-serif">`, width, height)
	v.add(`<rect width="%g" height="%g" fill="%s"/>`, width, height, background)
	return v
}

func (v *svg) add(format string, args ...any) { fmt.Fprintf(&v.buffer, format+"\n", args...) }

func (v *svg) bytes() []byte {
	v.add("</svg>")
	return v.buffer.Bytes()
}

func (v *svg) box(b box, fill, stroke string) {
	v.add(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="3" fill="%s" stroke="%s"/>`, b.x, b.y, b.w, b.h, fill, stroke)
}

func (v *svg) line(x1, y1, x2, y2 float64, stroke string) {
	v.add(`<path d="M%.1f %.1fL%.1f %.1f" stroke="%s"/>`, x1, y1, x2, y2, stroke)
}

func (v *svg) path(d, stroke string) {
	v.add(`<path d="%s" fill="none" stroke="%s" stroke-width="1.4" stroke-linejoin="round"/>`, d, stroke)
}

func (v *svg) area(d, fill string, opacity float64) {
	v.add(`<path d="%s" fill="%s" fill-opacity="%.2f"/>`, d, fill, opacity)
}

func (v *svg) text(x, y, size float64, fill string, weight int, text string) {
	v.add(`<text x="%.1f" y="%.1f" font-size="%g" font-weight="%d" fill="%s">%s</text>`, x, y, size, weight, fill, html.EscapeString(text))
}

func (v *svg) textEnd(x, y, size float64, fill, text string) {
	v.add(`<text x="%.1f" y="%.1f" font-size="%g" fill="%s" text-anchor="end">%s</text>`, x, y, size, fill, html.EscapeString(text))
}

func (v *svg) textMiddle(x, y, size float64, fill, text string) {
	v.add(`<text x="%.1f" y="%.1f" font-size="%g" fill="%s" text-anchor="middle">%s</text>`, x, y, size, fill, html.EscapeString(text))
}

// textWidth is about how wide a text is: who draws it knows its font, not we.
func textWidth(text string, size float64) float64 {
	return float64(utf8.RuneCountInString(text)) * size * .56
}
