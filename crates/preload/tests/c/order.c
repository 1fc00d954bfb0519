/* Events of the connection manager come in the order in which a device would tell them: one client
 * connects and leaves, again and again, after a message or without one, and its server sees each
 * connection established before the next one is asked for, and before its own end; and the end that
 * the client has heard of before it asks. Over the transport that WEFT_TRANSPORT names; the
 * argument is the number of connections. */
#include <arpa/inet.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>

#include "check.h"

static struct rdma_event_channel *here, *there;
static struct rdma_cm_id *listener;
static struct sockaddr_in address;
static int cycles;

static struct rdma_cm_event *next(struct rdma_event_channel *channel, const char *who)
{
	struct rdma_cm_event *event = NULL;
	CHECK(rdma_get_cm_event(channel, &event) == 0);
	if (event->status)
		fprintf(stderr, "%s: %s (%d)\n", who, rdma_event_str(event->event), event->status);
	CHECK(event->status == 0);
	return event;
}

static void expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type,
		   const char *who)
{
	struct rdma_cm_event *event = next(channel, who);
	/* It comes a while after the end. */
	while (event->event == RDMA_CM_EVENT_TIMEWAIT_EXIT) {
		CHECK(rdma_ack_cm_event(event) == 0);
		event = next(channel, who);
	}
	if (event->event != type)
		fprintf(stderr, "%s: %s, not %s\n", who, rdma_event_str(event->event),
			rdma_event_str(type));
	CHECK(event->event == type);
	CHECK(rdma_ack_cm_event(event) == 0);
}

static void give_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .sq_sig_all = 1 };
	attr.cap.max_send_wr = attr.cap.max_recv_wr = 1;
	attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
	CHECK(rdma_create_qp(id, NULL, &attr) == 0);
}

static int has_message(int cycle)
{
	return cycle / 2 % 2;
}

/* Whether the client hears of the end before it connects again. */
static int hears_end(int cycle)
{
	return cycle % 2;
}

static void await_completion(struct ibv_cq *cq)
{
	struct ibv_wc completion;
	int polled;
	do
		polled = ibv_poll_cq(cq, 1, &completion);
	while (polled == 0);
	CHECK(polled == 1 && completion.status == IBV_WC_SUCCESS);
}

static void receive(struct rdma_cm_id *id)
{
	struct ibv_recv_wr empty = { .wr_id = 1 }, *bad;
	CHECK(ibv_post_recv(id->qp, &empty, &bad) == 0);
}

static void send_message(struct rdma_cm_id *id)
{
	struct ibv_send_wr empty = { .wr_id = 1, .opcode = IBV_WR_SEND }, *bad;
	CHECK(ibv_post_send(id->qp, &empty, &bad) == 0);
	await_completion(id->send_cq);
}

static void end(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	CHECK(rdma_destroy_id(id) == 0);
}

static void *connect_and_leave(void *unused)
{
	struct rdma_conn_param param = { .initiator_depth = 1, .responder_resources = 1 };
	for (int i = 0; i < cycles; i++) {
		struct rdma_cm_id *id = NULL;
		CHECK(rdma_create_id(here, &id, NULL, RDMA_PS_TCP) == 0);
		CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000) == 0);
		expect(here, RDMA_CM_EVENT_ADDR_RESOLVED, "client");
		CHECK(rdma_resolve_route(id, 2000) == 0);
		expect(here, RDMA_CM_EVENT_ROUTE_RESOLVED, "client");
		give_qp(id);
		CHECK(rdma_connect(id, &param) == 0);
		expect(here, RDMA_CM_EVENT_ESTABLISHED, "client");
		if (has_message(i))
			send_message(id);
		/* The next one is asked for while this one may be ending. */
		CHECK(rdma_disconnect(id) == 0);
		if (hears_end(i))
			expect(here, RDMA_CM_EVENT_DISCONNECTED, "client");
		end(id);
	}
	return unused;
}

static void serve(void)
{
	struct rdma_conn_param param = { .initiator_depth = 1, .responder_resources = 1 };
	/* That the newest connection is established is to be told next. */
	struct rdma_cm_id *awaited = NULL;
	int begun = 0;
	for (int ended = 0; ended < cycles;) {
		struct rdma_cm_event *event = next(there, "server");
		struct rdma_cm_id *id = event->id, *over = NULL;
		switch (event->event) {
		case RDMA_CM_EVENT_CONNECT_REQUEST:
			CHECK(!awaited);
			CHECK(begun == ended || !hears_end(begun - 1));
			begun++;
			give_qp(id);
			receive(id);
			CHECK(rdma_accept(id, &param) == 0);
			awaited = id;
			break;
		case RDMA_CM_EVENT_ESTABLISHED:
			CHECK(awaited == id);
			awaited = NULL;
			if (has_message(begun - 1))
				await_completion(id->recv_cq);
			break;
		case RDMA_CM_EVENT_DISCONNECTED:
			CHECK(awaited != id);
			CHECK(rdma_disconnect(id) == 0);
			over = id;
			ended++;
			break;
		case RDMA_CM_EVENT_TIMEWAIT_EXIT:
			break;
		default:
			fprintf(stderr, "server: %s\n", rdma_event_str(event->event));
			CHECK(0);
		}
		CHECK(rdma_ack_cm_event(event) == 0);
		if (over)
			end(over);
	}
}

int main(int argc, char **argv)
{
	pthread_t client;
	CHECK(argc == 2 && (cycles = atoi(argv[1])) > 0);
	here = rdma_create_event_channel();
	there = rdma_create_event_channel();
	CHECK(here && there);
	CHECK(rdma_create_id(there, &listener, NULL, RDMA_PS_TCP) == 0);
	address.sin_family = AF_INET;
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(rdma_bind_addr(listener, (struct sockaddr *)&address) == 0);
	address.sin_port = rdma_get_src_port(listener);
	CHECK(rdma_listen(listener, 16) == 0);
	CHECK(pthread_create(&client, NULL, connect_and_leave, NULL) == 0);
	serve();
	CHECK(pthread_join(client, NULL) == 0);
	CHECK(rdma_destroy_id(listener) == 0);
	rdma_destroy_event_channel(here);
	rdma_destroy_event_channel(there);
	return 0;
}
