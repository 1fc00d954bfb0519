#include <infiniband/verbs.h>

#include "check.h"

/* The device of that name, which stays when the list is freed. */
static struct ibv_device *device_named(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL), *found = NULL;
	CHECK(list);
	for (int i = 0; list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			found = list[i];
	ibv_free_device_list(list);
	CHECK(found);
	return found;
}
