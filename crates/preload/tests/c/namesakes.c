/* A program whose own functions have the names of system calls that it does not use as such. */
#define listen listen_of_sockets
#include "device.h"

#include <rdma/rdma_cma.h>

#include <arpa/inet.h>
#undef listen

static int calls;

int listen(struct rdma_cm_id *id, int backlog)
{
	calls++;
	return rdma_listen(id, backlog);
}

int gettid(void)
{
	abort();
}

int mincore(void)
{
	abort();
}

int main(void)
{
	static char octets[64];
	struct sockaddr_in at = { .sin_family = AF_INET };
	struct rdma_cm_id *id;
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	struct rdma_event_channel *events = rdma_create_event_channel();
	CHECK(events && rdma_create_id(events, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(id, (struct sockaddr *)&at) == 0);
	CHECK(listen(id, 4) == 0 && calls == 1);
	struct ibv_context *context = ibv_open_device(device_named("weft0"));
	CHECK(context);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd && ibv_reg_mr(pd, octets, sizeof octets, IBV_ACCESS_LOCAL_WRITE));
	return 0;
}
