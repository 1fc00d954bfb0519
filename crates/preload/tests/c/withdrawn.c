/* A listener hears at once of a client that gives up before it was answered: its rdma_accept fails,
 * or an event follows. */
#include "check.h"

#include <rdma/rdma_cma.h>

#include <arpa/inet.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

static struct sockaddr_in address = { .sin_family = AF_INET };

static struct rdma_cm_event *next(struct rdma_event_channel *events)
{
	struct rdma_cm_event *event;
	struct pollfd ready = { .fd = events->fd, .events = POLLIN };
	CHECK(poll(&ready, 1, 5000) == 1 && rdma_get_cm_event(events, &event) == 0);
	return event;
}

static void expect(struct rdma_event_channel *events, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event = next(events);
	CHECK(event->event == type && rdma_ack_cm_event(event) == 0);
}

static void give_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC };
	attr.cap.max_send_wr = attr.cap.max_recv_wr = 4;
	attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
	CHECK(rdma_create_qp(id, NULL, &attr) == 0);
}

static struct rdma_cm_id *calling(struct rdma_event_channel *events)
{
	struct rdma_cm_id *id;
	CHECK(rdma_create_id(events, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000) == 0);
	expect(events, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(rdma_resolve_route(id, 2000) == 0);
	expect(events, RDMA_CM_EVENT_ROUTE_RESOLVED);
	give_qp(id);
	CHECK(rdma_connect(id, NULL) == 0);
	return id;
}

/* How a client gives up. */
enum { DESTROYS, DISCONNECTS, EXITS, WAYS };

static void client(int way, int listens, int asked)
{
	char octet;
	CHECK(read(listens, &address.sin_port, sizeof address.sin_port) == sizeof address.sin_port);
	struct rdma_event_channel *events = rdma_create_event_channel();
	struct rdma_cm_id *id = calling(events);
	CHECK(read(asked, &octet, 1) == 1);
	if (way == EXITS)
		exit(0);
	if (way == DISCONNECTS) {
		CHECK(rdma_disconnect(id) == 0);
		expect(events, RDMA_CM_EVENT_CONNECT_ERROR);
	}
	rdma_destroy_qp(id);
	CHECK(rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(events);
}

static struct rdma_cm_id *asked_by_child(struct rdma_event_channel *events, int asked)
{
	struct rdma_cm_event *event = next(events);
	struct rdma_cm_id *id = event->id;
	CHECK(event->event == RDMA_CM_EVENT_CONNECT_REQUEST && rdma_ack_cm_event(event) == 0);
	CHECK(write(asked, "", 1) == 1);
	return id;
}

static void accepts_in_vain(struct rdma_event_channel *events, struct rdma_cm_id *id)
{
	give_qp(id);
	if (rdma_accept(id, NULL) != 0) {
		CHECK(errno == ECONNRESET);
	} else {
		struct rdma_cm_event *event = next(events);
		CHECK(event->id == id && event->event == RDMA_CM_EVENT_REJECTED);
		CHECK(event->status == 4 && rdma_ack_cm_event(event) == 0);
	}
	rdma_destroy_qp(id);
	CHECK(rdma_destroy_id(id) == 0);
}

static void gives_up(int way)
{
	int listens[2], asked[2], status;
	CHECK(pipe(listens) == 0 && pipe(asked) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		client(way, listens[0], asked[0]);
		exit(0);
	}
	struct rdma_event_channel *events = rdma_create_event_channel();
	struct rdma_cm_id *listener;
	CHECK(rdma_create_id(events, &listener, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(listener, (struct sockaddr *)&address) == 0);
	CHECK(rdma_listen(listener, 1) == 0);
	uint16_t port = rdma_get_src_port(listener);
	CHECK(write(listens[1], &port, sizeof port) == sizeof port);
	struct rdma_cm_id *id = asked_by_child(events, asked[1]);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	accepts_in_vain(events, id);
	CHECK(rdma_destroy_id(listener) == 0);
	rdma_destroy_event_channel(events);
}

int main(void)
{
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	for (int way = 0; way < WAYS; way++)
		gives_up(way);
	return 0;
}
