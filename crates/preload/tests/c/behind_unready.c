/* A message behind one that has waited for a receive leaves when that is placed, also if the sender
 * sleeps for the answer and its send queue reports to nobody who sleeps. */
#include "peer.h"

#include <time.h>

enum { BYTES = 64, UNREADY_NS = 100000000, ASLEEP_US = 100000 };

static int told[2];

static void server(struct rdma_cm_id *id)
{
	static char memory[3 * BYTES];
	char word;
	struct ibv_mr *mr = rdma_reg_msgs(id, memory, sizeof(memory));
	CHECK(mr && rdma_accept(id, NULL) == 0);
	CHECK(read(told[0], &word, 1) == 1);
	/* Until the library of the client sleeps as well; what is to be seen does not depend on it. */
	usleep(ASLEEP_US);
	for (int i = 0; i < 2; i++)
		CHECK(rdma_post_recv(id, NULL, memory + i * BYTES, BYTES, mr) == 0);
	for (int i = 0; i < 2; i++) {
		CHECK(next_of(id->recv_cq).status == IBV_WC_SUCCESS);
		CHECK(memory[i * BYTES] == i + 1);
	}
	CHECK(rdma_post_send(id, NULL, memory, BYTES, mr, 0) == 0);
	CHECK(next_of(id->send_cq).status == IBV_WC_SUCCESS);
	CHECK(read(told[0], &word, 1) == 1);
	CHECK(rdma_dereg_mr(mr) == 0);
}

static long long now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static void client(struct rdma_cm_id *id)
{
	static char memory[3 * BYTES];
	struct ibv_cq *cq;
	void *context;
	struct ibv_wc wc;
	struct ibv_mr *mr = rdma_reg_msgs(id, memory, sizeof(memory));
	CHECK(mr && ibv_req_notify_cq(id->recv_cq, 0) == 0);
	memory[0] = 1;
	memory[BYTES] = 2;
	CHECK(rdma_post_recv(id, NULL, memory + 2 * BYTES, BYTES, mr) == 0);
	CHECK(rdma_post_send(id, NULL, memory, BYTES, mr, 0) == 0);
	/* Hears meanwhile that the message waits. */
	for (long long until = now_ns() + UNREADY_NS; now_ns() < until;)
		CHECK(ibv_poll_cq(id->send_cq, 1, &wc) == 0);
	CHECK(rdma_post_send(id, NULL, memory + BYTES, BYTES, mr, 0) == 0);
	CHECK(write(told[1], "s", 1) == 1);
	CHECK(ibv_get_cq_event(id->recv_cq_channel, &cq, &context) == 0 && cq == id->recv_cq);
	ibv_ack_cq_events(cq, 1);
	CHECK(next_of(id->recv_cq).status == IBV_WC_SUCCESS);
	CHECK(write(told[1], "e", 1) == 1);
	CHECK(rdma_dereg_mr(mr) == 0);
}

int main(void)
{
	silent_sends = 1;
	CHECK(pipe(told) == 0);
	return meet(server, client);
}
