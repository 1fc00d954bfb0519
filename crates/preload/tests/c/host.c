/* Opens a plugin out of the way of everybody else, and reports the number of devices it sees. */
#include <dlfcn.h>

#include "check.h"

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	void *handle = dlopen(argv[1], RTLD_LAZY | RTLD_LOCAL);
	if (!handle)
		fprintf(stderr, "%s\n", dlerror());
	CHECK(handle);
	int (*plugin)(void) = (int (*)(void))dlsym(handle, "plugin");
	CHECK(plugin);
	fprintf(stderr, "devices: %d\n", plugin());
	return 0;
}
