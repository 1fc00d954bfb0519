package verbs

import "testing"

// It needs a device: go test -exec "weft run" ./...
func TestThereIsADevice(t *testing.T) {
	if names := DeviceNames(); len(names) == 0 {
		t.Fatal("no RDMA device; run it by go test -exec 'weft run'")
	}
}
