/* Opens libibverbs at run time, by the file that the first argument names. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "check.h"

typedef void **(*list_fn)(int *);
typedef void (*free_fn)(void **);
typedef const char *(*name_fn)(void *);

static void try(void *list, void *done, void *name)
{
	int count = -1;
	CHECK(list && done && name);
	void **devices = ((list_fn)list)(&count);
	CHECK(devices && count == 2);
	CHECK(!strncmp(((name_fn)name)(devices[0]), "weft", 4));
	((free_fn)done)(devices);
}

#define PLAIN(handle) \
	try(dlsym(handle, "ibv_get_device_list"), dlsym(handle, "ibv_free_device_list"), \
	    dlsym(handle, "ibv_get_device_name"))
#define VERSIONED(handle) \
	try(dlvsym(handle, "ibv_get_device_list", "IBVERBS_1.1"), \
	    dlvsym(handle, "ibv_free_device_list", "IBVERBS_1.1"), \
	    dlvsym(handle, "ibv_get_device_name", "IBVERBS_1.1"))

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	CHECK(!dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD));
	dlerror();
	void *handle = dlopen(argv[1], RTLD_NOW);
	CHECK(handle && !dlerror());
	PLAIN(handle);
	PLAIN(RTLD_DEFAULT);
	VERSIONED(handle);
	VERSIONED(RTLD_DEFAULT);
	if (!strcmp(argv[2], "real")) {
		/* Names that Weft does not serve come from the real library. */
		CHECK(dlsym(handle, "ibv_copy_ah_attr_from_kern"));
	}
	CHECK(!dlsym(handle, "ibv_no_such_function") && dlerror());
	CHECK(!dlsym(handle, "no_such_function") && dlerror());
	CHECK(dlsym(RTLD_DEFAULT, "malloc") && !dlerror());
	CHECK(dlvsym(RTLD_DEFAULT, "malloc", "GLIBC_2.2.5"));
	CHECK(!dlopen("no_such_library.so", RTLD_NOW) && dlerror());
	CHECK(dlopen(NULL, RTLD_NOW));
	CHECK(dlclose(handle) == 0);
	return 0;
}
