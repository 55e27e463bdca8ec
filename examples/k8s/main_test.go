package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"
)

func TestMain(m *testing.M) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}

var short = settings{namespace: "default", runFor: 4 * time.Second, limit: time.Second}

// story is what the output tells, in this order but for the watcher that stalls.
var story = []string{
	`\d+ pods at .*:\d+`,
	`  default/web-\d+: Pending, on no node`,
	`that was the state at \d+; now what changes`,
	`  default/web-\d+: Pending, on no node -> Pending on node-\d`,
	`  default/web-\d+: Pending on node-\d -> Running on node-\d`,
	`  default/web-\d+: deleted, was Running on node-\d`,
	`  default/web-\d+: Pending, on no node`,
}

func check(t *testing.T, out string) {
	t.Helper()
	from := 0
	for _, want := range story {
		at := regexp.MustCompile(`(?m)^` + want + `$`).FindStringIndex(out[from:])
		if at == nil {
			t.Fatalf("after %d bytes there is no %q in\n%s", from, want, out)
		}
		from += at[1]
	}
	if !strings.Contains(out, "the watcher that stalled: watchcache: ") || !strings.Contains(out, "nothing of the initial state taken") {
		t.Errorf("no watcher ended as stalled in\n%s", out)
	}
}

func TestOwnServer(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out, short); err != nil {
		t.Fatal(err)
	}
	check(t, out.String())
}

// TestKubeconfig: a cluster is found by a file, as kubectl's.
func TestKubeconfig(t *testing.T) {
	var out strings.Builder
	err := withServer(t.Context(), func(ctx context.Context, config *rest.Config) error {
		file := clientcmdapi.NewConfig()
		file.Clusters["c"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
		file.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
		file.CurrentContext = "c"
		s := short
		s.kubeconfig = filepath.Join(t.TempDir(), "config")
		if err := clientcmd.WriteToFile(*file, s.kubeconfig); err != nil {
			return err
		}
		return run(ctx, &out, s)
	})
	if err != nil {
		t.Fatal(err)
	}
	check(t, out.String())
	if err := run(t.Context(), &out, settings{kubeconfig: filepath.Join(t.TempDir(), "none")}); !os.IsNotExist(err) {
		t.Errorf("a file that is not there: %v", err)
	}
}
