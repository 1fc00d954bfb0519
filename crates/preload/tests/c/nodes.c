/* Looks names up as a program does that opens rdma-core at run time and goes on without what it
 * does not find. The arguments are version nodes and names, by turns. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "check.h"

static void served(void *found)
{
	Dl_info info;
	CHECK(found && !dlerror());
	CHECK(dladdr(found, &info) && strstr(info.dli_fname, "libweft.so"));
}

int main(int argc, char **argv)
{
	void *verbs = dlopen("libibverbs.so.1", RTLD_NOW), *cm = dlopen("librdmacm.so.1", RTLD_NOW);
	CHECK(verbs && cm && !dlerror());
	CHECK(argc > 200 && argc % 2 == 1);
	for (int i = 1; i < argc; i += 2) {
		const char *node = argv[i], *name = argv[i + 1];
		void *handle = strncmp(name, "rdma_", 5) ? verbs : cm;
		fprintf(stderr, "%s@%s\n", name, node);
		served(dlsym(handle, name));
		served(dlvsym(handle, name, node));
		served(dlvsym(RTLD_DEFAULT, name, node));
	}
	CHECK(!dlsym(verbs, "rdma_write_cm_event") && dlerror());
	CHECK(!dlvsym(verbs, "ibv_of_another_day", "IBVERBS_1.99") && dlerror());
	return 0;
}
