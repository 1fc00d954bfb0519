/* An application that polls one completion for each look at its events, as libfabric's ofi_rxm
 * does, and has not run since its peer sent and left: it sees every message before it is told of
 * the end, on which it would destroy the queue pair. Over the transport that WEFT_TRANSPORT
 * names. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>

#include "check.h"

enum { MESSAGES = 8 };

static char buffer[64];
static struct ibv_mr *mr;

static struct rdma_cm_id *expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event = NULL;
	struct rdma_cm_id *id;
	CHECK(rdma_get_cm_event(channel, &event) == 0);
	CHECK(event->event == type);
	id = event->id;
	CHECK(rdma_ack_cm_event(event) == 0);
	return id;
}

static void give_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .sq_sig_all = 1 };
	attr.cap.max_send_wr = attr.cap.max_recv_wr = MESSAGES;
	attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
	CHECK(rdma_create_qp(id, NULL, &attr) == 0);
	if (!mr)
		CHECK(mr = ibv_reg_mr(id->pd, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE));
}

static void post(struct rdma_cm_id *id, int receive)
{
	struct ibv_sge sge = { (uintptr_t)buffer, sizeof buffer, mr->lkey };
	struct ibv_recv_wr recv = { .sg_list = &sge, .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr send = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad_send;
	for (int i = 0; i < MESSAGES; i++)
		CHECK((receive ? ibv_post_recv(id->qp, &recv, &bad_recv)
			       : ibv_post_send(id->qp, &send, &bad_send)) == 0);
}

/* The next completion, if there is one; whether it is a success. */
static int sees(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int count = ibv_poll_cq(cq, 1, &wc);
	CHECK(count >= 0);
	return count && wc.status == IBV_WC_SUCCESS;
}

static void look_and_poll(struct rdma_event_channel *channel, struct ibv_cq *cq)
{
	struct rdma_cm_event *event = NULL;
	int seen = 0;
	/* Events first: it cannot know that anything has changed. */
	while (rdma_get_cm_event(channel, &event)) {
		CHECK(errno == EAGAIN);
		seen += sees(cq);
	}
	CHECK(event->event == RDMA_CM_EVENT_DISCONNECTED);
	CHECK(rdma_ack_cm_event(event) == 0);
	if (seen != MESSAGES)
		fprintf(stderr, "%d of %d messages were seen before the end\n", seen, MESSAGES);
	CHECK(seen == MESSAGES);
}

int main(void)
{
	struct rdma_event_channel *here = rdma_create_event_channel();
	struct rdma_event_channel *there = rdma_create_event_channel();
	struct rdma_conn_param param = { .initiator_depth = 1, .responder_resources = 1 };
	struct sockaddr_in address = { .sin_family = AF_INET };
	struct rdma_cm_id *listener, *client, *server;
	struct rdma_cm_event *none;
	struct pollfd told;
	CHECK(here && there);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(rdma_create_id(there, &listener, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(listener, (struct sockaddr *)&address) == 0);
	address.sin_port = rdma_get_src_port(listener);
	CHECK(rdma_listen(listener, 1) == 0);
	CHECK(rdma_create_id(here, &client, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_resolve_addr(client, NULL, (struct sockaddr *)&address, 2000) == 0);
	expect(here, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(rdma_resolve_route(client, 2000) == 0);
	expect(here, RDMA_CM_EVENT_ROUTE_RESOLVED);
	give_qp(client);
	CHECK(rdma_connect(client, &param) == 0);
	server = expect(there, RDMA_CM_EVENT_CONNECT_REQUEST);
	give_qp(server);
	post(server, 1);
	CHECK(rdma_accept(server, &param) == 0);
	expect(here, RDMA_CM_EVENT_ESTABLISHED);
	expect(there, RDMA_CM_EVENT_ESTABLISHED);

	/* It looks for events whether there are any or not. */
	CHECK(fcntl(there->fd, F_SETFL, fcntl(there->fd, F_GETFL) | O_NONBLOCK) == 0);
	CHECK(rdma_get_cm_event(there, &none) == -1 && errno == EAGAIN);
	post(client, 0);
	for (int sent = 0; sent < MESSAGES;)
		sent += sees(client->send_cq);
	CHECK(rdma_disconnect(client) == 0);
	/* That it has not run all this while. */
	told = (struct pollfd){ .fd = there->fd, .events = POLLIN };
	CHECK(poll(&told, 1, 20000) == 1);
	look_and_poll(there, server->recv_cq);

	rdma_destroy_qp(server);
	rdma_destroy_qp(client);
	CHECK(rdma_destroy_id(server) == 0 && rdma_destroy_id(client) == 0);
	CHECK(rdma_destroy_id(listener) == 0);
	return 0;
}
