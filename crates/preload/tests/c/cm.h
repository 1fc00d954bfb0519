/* Both ends of connections by rdma-cm in one process, on one channel. */
#include "check.h"

#include <rdma/rdma_cma.h>

#include <arpa/inet.h>

static struct rdma_event_channel *events;
static struct sockaddr_in address;

static inline struct rdma_cm_event *next(enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	CHECK(rdma_get_cm_event(events, &event) == 0);
	if (event->event != type) {
		fprintf(stderr, "%s, not %s\n", rdma_event_str(event->event), rdma_event_str(type));
		exit(1);
	}
	return event;
}

static inline void expect(enum rdma_cm_event_type type)
{
	CHECK(rdma_ack_cm_event(next(type)) == 0);
}

static inline struct rdma_cm_id *listening(enum rdma_port_space space)
{
	struct rdma_cm_id *id;
	address = (struct sockaddr_in){ .sin_family = AF_INET };
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(rdma_create_id(events, &id, NULL, space) == 0);
	CHECK(rdma_bind_addr(id, (struct sockaddr *)&address) == 0 && rdma_listen(id, 1) == 0);
	address.sin_port = rdma_get_src_port(id);
	return id;
}

static inline void give_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = { .qp_type = id->qp_type };
	attr.cap.max_send_wr = attr.cap.max_recv_wr = 4;
	attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
	CHECK(rdma_create_qp(id, NULL, &attr) == 0);
}

/* An id that has a route to the listener, and a queue pair. */
static inline struct rdma_cm_id *routed(enum rdma_port_space space)
{
	struct rdma_cm_id *id;
	CHECK(rdma_create_id(events, &id, NULL, space) == 0);
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000) == 0);
	expect(RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(rdma_resolve_route(id, 2000) == 0);
	expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
	give_qp(id);
	return id;
}

/* The id of the request that comes next. */
static inline struct rdma_cm_id *asked(void)
{
	struct rdma_cm_event *event = next(RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *id = event->id;
	CHECK(rdma_ack_cm_event(event) == 0);
	return id;
}

static inline void destroy(struct rdma_cm_id *id)
{
	if (id->qp)
		rdma_destroy_qp(id);
	CHECK(rdma_destroy_id(id) == 0);
}
