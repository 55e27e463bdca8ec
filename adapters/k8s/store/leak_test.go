package store_test

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// apiserver and what it uses start these once for the process.
		goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
		goleak.IgnoreAnyFunction("k8s.io/apiserver/pkg/storage/feature.(*defaultFeatureSupportChecker).checkAndSaveFeature"),
	)
}
