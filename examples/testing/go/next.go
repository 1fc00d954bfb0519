package verbs

/*
#include <infiniband/verbs.h>
*/
import "C"

import "unsafe"

// next is the place behind one of a list of devices.
func next(device **C.struct_ibv_device) **C.struct_ibv_device {
	return (**C.struct_ibv_device)(unsafe.Add(unsafe.Pointer(device), unsafe.Sizeof(*device)))
}
