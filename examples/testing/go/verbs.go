// Package verbs is what a project in Go might have of its own over verbs, by cgo: Go programs
// without cgo are static, and nothing can be put before those.
package verbs

/*
#cgo LDFLAGS: -libverbs
#include <infiniband/verbs.h>
*/
import "C"

// DeviceNames returns the names of the RDMA devices that this process sees.
func DeviceNames() []string {
	var count C.int
	list := C.ibv_get_device_list(&count)
	if list == nil {
		return nil
	}
	defer C.ibv_free_device_list(list)
	var names []string
	for device := list; *device != nil; device = next(device) {
		names = append(names, C.GoString(C.ibv_get_device_name(*device)))
	}
	return names
}
