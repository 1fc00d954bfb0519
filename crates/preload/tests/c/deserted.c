/* A client whose listener ends before it has answered hears so from the listener, not from the
 * system that finds nobody there. */
#include "check.h"

#include <rdma/rdma_cma.h>

#include <arpa/inet.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

/* The reason of a rejection by the application, or by its id that is no more. */
enum { REJECTED_BY_PEER = 28 };

/* How the listener ends, once it has a request that it may not have read. */
enum { EXITS, EXITS_AT_ONCE, EXITS_UNREAD, WAYS };

static struct sockaddr_in address = { .sin_family = AF_INET };

static struct rdma_cm_event *next(struct rdma_event_channel *events)
{
	struct rdma_cm_event *event;
	CHECK(rdma_get_cm_event(events, &event) == 0);
	return event;
}

static void expect(struct rdma_event_channel *events, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event = next(events);
	CHECK(event->event == type && rdma_ack_cm_event(event) == 0);
}

static void listener(int way, int listens)
{
	struct rdma_event_channel *events = rdma_create_event_channel();
	struct pollfd ready = { .fd = events->fd, .events = POLLIN };
	struct rdma_cm_id *id;
	CHECK(rdma_create_id(events, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(id, (struct sockaddr *)&address) == 0 && rdma_listen(id, 1) == 0);
	uint16_t port = rdma_get_src_port(id);
	CHECK(write(listens, &port, sizeof port) == sizeof port);
	CHECK(poll(&ready, 1, -1) == 1);
	if (way != EXITS_UNREAD)
		expect(events, RDMA_CM_EVENT_CONNECT_REQUEST);
	if (way == EXITS_AT_ONCE)
		_exit(0);
	exit(0);
}

static void connect_in_vain(struct rdma_event_channel *events)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC };
	struct rdma_cm_id *id;
	attr.cap.max_send_wr = attr.cap.max_recv_wr = 4;
	attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
	CHECK(rdma_create_id(events, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000) == 0);
	expect(events, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(rdma_resolve_route(id, 2000) == 0);
	expect(events, RDMA_CM_EVENT_ROUTE_RESOLVED);
	CHECK(rdma_create_qp(id, NULL, &attr) == 0 && rdma_connect(id, NULL) == 0);
	struct rdma_cm_event *event = next(events);
	CHECK(event->event == RDMA_CM_EVENT_REJECTED && event->status == REJECTED_BY_PEER);
	CHECK(rdma_ack_cm_event(event) == 0);
	rdma_destroy_qp(id);
	CHECK(rdma_destroy_id(id) == 0);
}

static void ends(int way)
{
	int listens[2], status;
	CHECK(pipe(listens) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	address.sin_port = 0;
	if (child == 0)
		listener(way, listens[1]);
	CHECK(read(listens[0], &address.sin_port, sizeof address.sin_port) ==
	      sizeof address.sin_port);
	struct rdma_event_channel *events = rdma_create_event_channel();
	connect_in_vain(events);
	rdma_destroy_event_channel(events);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(void)
{
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	for (int way = 0; way < WAYS; way++)
		ends(way);
	return 0;
}
