package browser

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
	"go.uber.org/goleak"
)

var (
	pictures = flag.String("pictures", "", "draw the pages into this folder")
	required = flag.Bool("required", os.Getenv("CI") != "", "fail, rather than skip, if there is no chromium")
)

// program names a browser to use instead of the chromium on the PATH.
const program = "CHROMIUM"

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	chromium.stop()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "goroutines left behind:", err)
		code = 1
	}
	os.Exit(code)
}

// chromium is the browser that all tests share. Each of their tabs has a profile of its own.
var chromium browser

// browser starts when a test first asks for it.
type browser struct {
	once  sync.Once
	ctx   context.Context
	ended []context.CancelFunc
	err   error
}

// get returns the context of the running browser. Without one, the test is skipped, or fails if one is required.
func (b *browser) get(t *testing.T) context.Context {
	t.Helper()
	b.once.Do(b.start)
	switch {
	case errors.Is(b.err, exec.ErrNotFound) && !*required:
		t.Skip("chromium is not found: run scripts/install.sh chromium, or name one in " + program)
	case b.err != nil:
		t.Fatal(b.err)
	}
	return b.ctx
}

func (b *browser) start() {
	path, err := find()
	if err != nil {
		b.err = err
		return
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Env("TZ=America/New_York", "LANG=en_US.UTF-8"))
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, stop := chromedp.NewContext(allocator)
	b.ctx, b.ended = ctx, []context.CancelFunc{stop, end}
	if err := chromedp.Do(ctx); err != nil {
		b.err = fmt.Errorf("start %s: %w", path, err)
	}
}

func (b *browser) stop() {
	for _, end := range b.ended {
		end()
	}
}

// find returns the path of a browser.
func find() (string, error) {
	if path := os.Getenv(program); path != "" {
		return exec.LookPath(path)
	}
	var errs []error
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		path, err := exec.LookPath(name)
		if err == nil {
			return path, nil
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}
