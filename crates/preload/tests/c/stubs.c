/* Linked with the stubs, without anything in front of them when "alone" is said: then every call
 * fails as not supported, by its own convention. */
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>

#include "check.h"

static void fails(int failed)
{
	CHECK(failed && errno == EOPNOTSUPP);
	errno = 0;
}

int main(int argc, char **argv)
{
	int alone = argc > 1 && !strcmp(argv[1], "alone"), count = -1;
	struct ibv_device **devices = ibv_get_device_list(&count);
	if (alone) {
		fails(!devices);
		fails(!rdma_create_event_channel());
		fails(ibv_fork_init() == EOPNOTSUPP);
	} else {
		CHECK(devices && count == 2);
		struct ibv_context *context = ibv_open_device(devices[0]);
		CHECK(context && !ibv_close_device(context));
		CHECK(!mlx5dv_is_supported(devices[0]));
		ibv_free_device_list(devices);
		errno = 0;
	}
	fails(rsocket(AF_INET, SOCK_STREAM, 0) == -1);
	fails(!mlx5dv_open_device(NULL, NULL));
	return 0;
}
