package browser

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

// tab is an open page of the browser. It fails its test if the page has errors: of scripts, of what it loads, or against its
// policy. No dialog may open either, since none of our pages opens one.
type tab struct {
	t    *testing.T
	ctx  context.Context
	root string // URL of the list of topics

	mu       sync.Mutex
	faults   []string // guarded by mu
	excepted []string // guarded by mu; parts of the faults that the test makes on purpose
}

// policyFaults reports what the policy forbids, which the log does not have for all kinds of content.
const policyFaults = `addEventListener("securitypolicyviolation", e => console.error("against the policy:", e.violatedDirective, e.blockedURI))`

// newTab opens an empty tab, 1200 wide, with what the options change.
func newTab(t *testing.T, root string, options ...step) *tab {
	t.Helper()
	b := &tab{t: t, root: root}
	ctx, end := chromedp.NewContext(chromium.get(t), chromedp.WithNewBrowserContext(), chromedp.WithListener(b.listen))
	b.ctx = ctx
	t.Cleanup(func() {
		b.judge()
		end()
	})
	require.NoError(t, chromedp.Do(ctx)) // it opens the tab; the end of its context would close it
	b.run(send(log.Enable, cdp.Empty{}))
	b.run(send(runtime.Enable, cdp.Empty{}))
	b.run(wide(1200))
	b.run(light())
	b.run(send(page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: policyFaults}))
	b.run(options...)
	return b
}

// step is something that a tab does.
type step = chromedp.Action[chromedp.Void]

// send sends a command of the browser's protocol.
func send[P, R any](command cdp.Command[P, R], params P) step {
	return func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, t, command, params)
		return chromedp.Void{}, err
	}
}

// wide is the width of the page.
func wide(width int64) step { return chromedp.EmulateViewport(width, 800) }

// dark asks for the colors of the night.
func dark() step { return colors("dark") }

// light asks for those of the day.
func light() step { return colors("light") }

func colors(scheme string) step {
	feature := &emulation.MediaFeature{Name: "prefers-color-scheme", Value: scheme}
	return send(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{feature}})
}

// noScripts turns JavaScript off.
func noScripts() step {
	return send(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
}

func (b *tab) listen(event any) {
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.fault("an exception: %s", thrown(e.ExceptionDetails))
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning || e.Type == runtime.ConsoleAPICalledTypeAssert {
			var words []string
			for _, arg := range e.Args {
				words = append(words, string(arg.Value)+arg.Description)
			}
			b.fault("in the console: %s", strings.Join(words, " "))
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError {
			b.fault("in the log, of %s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL)
		}
	case *page.EventJavascriptDialogOpening:
		b.fault("a dialog: %s", e.Message)
		go func() { // the page waits for it; ends with the tab
			_ = chromedp.Do(b.ctx, send(page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{}))
		}()
	}
}

func thrown(e *runtime.ExceptionDetails) string {
	if e.Exception != nil && e.Exception.Description != "" {
		return e.Exception.Description
	}
	return e.Text
}

func (b *tab) fault(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = append(b.faults, fmt.Sprintf(format, args...))
}

// except allows faults that contain a text.
func (b *tab) except(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.excepted = append(b.excepted, text)
}

// judge fails the test for each fault.
func (b *tab) judge() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, fault := range b.faults {
		if !slices.ContainsFunc(b.excepted, func(text string) bool { return strings.Contains(fault, text) }) {
			b.t.Error("the page had ", fault)
		}
	}
}

func (b *tab) run(steps ...step) {
	b.t.Helper()
	ctx, end := context.WithTimeout(b.ctx, fixture.Soon)
	defer end()
	require.NoError(b.t, chromedp.Do(ctx, steps...))
}

// open goes to a page of the dashboard, and waits until it is there.
func (b *tab) open(path string) {
	b.t.Helper()
	b.run(chromedp.Navigate(b.root + path))
}

// ask evaluates an expression in the page.
func ask[T any](b *tab, expression string) T {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	require.NoError(b.t, err, expression)
	return value
}

// until waits until a page that has loaded makes an expression true: this page, or the one after it.
func (b *tab) until(expression string) {
	b.t.Helper()
	deadline := time.Now().Add(fixture.Soon)
	for !b.holds("document.readyState === 'complete' && (" + expression + ")") {
		if time.Now().After(deadline) {
			require.Fail(b.t, "not in time", "%s\non %s:\n%s", expression, b.path(), b.text("main"))
		}
		pause()
	}
}

// holds reports whether an expression is true; it is not while the page changes.
func (b *tab) holds(expression string) bool {
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](expression))
	return err == nil && value
}

// pause leaves the processor to the browser between two looks at it.
func pause() { <-time.After(20 * time.Millisecond) }

// untilText waits until an element contains a text.
func (b *tab) untilText(selector, text string) {
	b.t.Helper()
	b.until(fmt.Sprintf("(document.querySelector(%q)?.innerText ?? '').includes(%q)", selector, text))
}

// text is what an element shows.
func (b *tab) text(selector string) string {
	b.t.Helper()
	return ask[string](b, fmt.Sprintf("document.querySelector(%q)?.innerText ?? ''", selector))
}

// number is how many elements there are.
func (b *tab) number(selector string) int {
	b.t.Helper()
	return ask[int](b, fmt.Sprintf("document.querySelectorAll(%q).length", selector))
}

// path is where the tab is.
func (b *tab) path() string {
	b.t.Helper()
	return strings.TrimPrefix(ask[string](b, "location.href"), b.root)
}

// uncovered reports whether somebody can click in the middle of an element.
const uncovered = `(e => {
  e?.scrollIntoView({ block: "center", behavior: "instant" });
  const place = e?.getClientRects()[0];
  return place !== undefined && e.contains(document.elementFromPoint(place.x + place.width / 2, place.y + place.height / 2));
})(document.querySelector(%q))`

// click clicks on what a selector finds first, wherever that is by then: a live page may move it at any time.
func (b *tab) click(selector string) {
	b.t.Helper()
	b.until(fmt.Sprintf(uncovered, selector))
	ask[bool](b, fmt.Sprintf("document.querySelector(%q).click(), true", selector))
}

// choose chooses an option of a list.
func (b *tab) choose(selector, value string) {
	b.t.Helper()
	ask[bool](b, fmt.Sprintf("(e => { e.value = %q; return e.dispatchEvent(new Event('change')) })(document.querySelector(%q))", value, selector))
}

// press presses keys, wherever the focus is.
func (b *tab) press(keys string) {
	b.t.Helper()
	b.run(chromedp.KeyEvent(keys))
}

// typeInto types into a field.
func (b *tab) typeInto(selector, text string) {
	b.t.Helper()
	b.until(fmt.Sprintf("document.querySelector(%q)?.checkVisibility()", selector))
	b.run(chromedp.SendKeys(chromedp.CSS(selector), text))
}

// live waits until the stream of the page is open.
func (b *tab) live() {
	b.t.Helper()
	b.until("document.querySelector('#status').className === 'live'")
}
