package redisdelayprom

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/fixture"
)

// prometheusServer is a real Prometheus that scrapes twice a second.
type prometheusServer struct {
	t    *testing.T
	addr string
	dir  string
}

const prometheusConfig = `
global: {scrape_interval: 500ms, scrape_timeout: 500ms}
scrape_configs:
  - job_name: test
    file_sd_configs: [{files: ['%s/*.json']}]
`

// startPrometheus starts a Prometheus, which the end of the test stops.
func startPrometheus(t *testing.T, flags ...string) *prometheusServer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &prometheusServer{t: t, addr: listener.Addr().String(), dir: t.TempDir()}
	require.NoError(t, listener.Close())
	config := filepath.Join(p.dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, prometheusConfig, p.dir), 0o600))
	log, err := os.Create(filepath.Join(p.dir, "log"))
	require.NoError(t, err)
	cmd := exec.Command("prometheus", append([]string{
		"--config.file=" + config, "--storage.tsdb.path=" + filepath.Join(p.dir, "data"), "--web.listen-address=" + p.addr,
	}, flags...)...)
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, cmd.Start(), "install it with scripts/install-prometheus.sh")
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // stopped
		text, _ := os.ReadFile(log.Name())
		if _ = log.Close(); t.Failed() {
			t.Logf("prometheus says: %s", text)
		}
	})
	require.Eventually(t, func() bool { return p.get("/-/ready", nil) == nil }, fixture.Soon, 20*time.Millisecond)
	return p
}

// scrape makes it scrape an address; all series get the label worker.
func (p *prometheusServer) scrape(worker, addr string) {
	p.t.Helper()
	text := fmt.Sprintf(`[{"targets": [%q], "labels": {"worker": %q}}]`, addr, worker)
	temporary := filepath.Join(p.dir, worker+".new")
	require.NoError(p.t, os.WriteFile(temporary, []byte(text), 0o600))
	require.NoError(p.t, os.Rename(temporary, filepath.Join(p.dir, worker+".json")))
}

var errStatus = errors.New("status")

// get makes a call and decodes the answer into a value, if there is one.
func (p *prometheusServer) get(path string, into any) error {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	reply, err := client.Get("http://" + p.addr + path)
	if err != nil {
		return err
	}
	defer func() { _ = reply.Body.Close() }() // it was only read
	if reply.StatusCode != http.StatusOK {
		return fmt.Errorf("%w %s", errStatus, reply.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(reply.Body).Decode(into)
}

// query returns the values that an expression has now, by the values of their labels.
func (p *prometheusServer) query(c require.TestingT, expression string) map[string]float64 {
	var reply struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	require.NoError(c, p.get("/api/v1/query?query="+url.QueryEscape(expression), &reply))
	values := map[string]float64{}
	for _, r := range reply.Data.Result {
		var labels []string
		for _, name := range []string{"worker", "group", "how", "class"} {
			if v := r.Metric[name]; v != "" {
				labels = append(labels, v)
			}
		}
		text, _ := r.Value[1].(string)
		value, err := strconv.ParseFloat(text, 64)
		require.NoError(c, err)
		values[strings.Join(labels, " ")] = value
	}
	return values
}

// TestARealPrometheusReadsNativeHistograms if that is switched on.
func TestARealPrometheusReadsNativeHistograms(t *testing.T) {
	m, registry := newMetrics(t, Config{})
	tellAll(m.Observer())
	p := startPrometheus(t, "--enable-feature=native-histograms")
	p.scrape("only", serve(t, registry))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Equal(c, map[string]float64{"only g": 1}, p.query(c, "histogram_count(redisdelay_lateness_seconds)"))
	}, fixture.Soon, 50*time.Millisecond)
}
