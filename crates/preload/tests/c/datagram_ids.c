/* Ids for datagrams: to disconnect one fails its queue pair, and nothing else happens. */
#include "cm.h"

#include <fcntl.h>

static void disconnects(struct rdma_cm_id *id)
{
	CHECK(rdma_disconnect(id) == 0 && id->qp->state == IBV_QPS_ERR);
	CHECK(rdma_disconnect(id) == 0);
}

static void no_event(void)
{
	struct rdma_cm_event *event;
	CHECK(rdma_get_cm_event(events, &event) == -1 && errno == EAGAIN);
}

int main(void)
{
	CHECK((events = rdma_create_event_channel()));
	struct rdma_cm_id *listener = listening(RDMA_PS_UDP), *active = routed(RDMA_PS_UDP);
	CHECK(rdma_disconnect(active) == -1 && errno == EINVAL);
	struct rdma_conn_param param = { .retry_count = 7 };
	CHECK(rdma_connect(active, &param) == 0);
	struct rdma_cm_id *passive = asked();
	give_qp(passive);
	CHECK(rdma_accept(passive, &param) == 0);
	expect(RDMA_CM_EVENT_ESTABLISHED);
	CHECK(fcntl(events->fd, F_SETFL, O_NONBLOCK) == 0);
	disconnects(active);
	disconnects(passive);
	no_event();
	destroy(active);
	destroy(passive);
	destroy(listener);
	rdma_destroy_event_channel(events);
	return 0;
}
