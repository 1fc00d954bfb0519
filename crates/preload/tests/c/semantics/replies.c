/* A send is complete before its peer's reply to it: with one completion queue for both, its
 * completion comes first there; with two, it is to be found once the reply is. Programs spend their
 * credits by completions. */
#include "pair.h"

#include <pthread.h>

enum { ROUNDS = 400, DEPTH = 8, LENGTH_MAX = 100000, FAR = ROOM / 2 };

static int length;

/* Answers each message. */
static void *answer(void *rounds)
{
	for (int sent = 0; sent < *(int *)rounds * DEPTH;) {
		struct ibv_wc wc = next(b.cq);
		CHECK(wc.status == IBV_WC_SUCCESS);
		if (wc.opcode == IBV_WC_SEND) {
			sent++;
			continue;
		}
		receive(b, wc.wr_id, FAR + wc.wr_id * length, length);
		post(b, IBV_WR_SEND, 0, IBV_SEND_SIGNALED, FAR, length, 0);
	}
	return NULL;
}

/* Posts a batch of sends at once, and takes their completions and replies. */
static void ask(struct ibv_cq *replies, int round)
{
	int sent = 0, answered = 0;
	for (int i = 0; i < DEPTH; i++)
		post(a, IBV_WR_SEND, i, IBV_SEND_SIGNALED, 0, length, 0);
	while (sent < DEPTH || answered < DEPTH) {
		struct ibv_wc wc = next(replies);
		CHECK(wc.status == IBV_WC_SUCCESS);
		if (wc.opcode == IBV_WC_SEND) {
			CHECK((int)wc.wr_id == sent);
			sent++;
			continue;
		}
		receive(a, wc.wr_id, wc.wr_id * length, length);
		answered++;
		if (replies != a.cq && sent < DEPTH) {
			struct ibv_wc wcs[DEPTH];
			sent += ibv_poll_cq(a.cq, DEPTH, wcs);
		}
		if (sent < answered)
			fprintf(stderr, "round %d: reply %d after %d sends\n", round, answered, sent);
		CHECK(sent >= answered);
	}
}

static void talk(int queues, int rounds)
{
	struct ibv_qp_init_attr init = wanted;
	pthread_t thread;
	a.cq = make_cq(256), b.cq = make_cq(256);
	init.send_cq = a.cq;
	init.recv_cq = queues == 1 ? a.cq : make_cq(256);
	a.qp = ibv_create_qp(pd, &init);
	b.qp = make_qp(b.cq);
	CHECK(a.qp);
	join(a.qp, b.qp);
	for (int i = 0; i < 2 * DEPTH; i++) {
		receive(a, i, i * length, length);
		receive(b, i, FAR + i * length, length);
	}
	CHECK(pthread_create(&thread, NULL, answer, &rounds) == 0);
	for (int round = 0; round < rounds; round++)
		ask(init.recv_cq, round);
	CHECK(pthread_join(thread, NULL) == 0);
	part();
	if (queues > 1)
		CHECK(ibv_destroy_cq(init.recv_cq) == 0);
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	wanted.cap.max_send_wr = wanted.cap.max_recv_wr = 4 * DEPTH;
	for (int queues = 1; queues <= 2; queues++) {
		length = 4000;
		talk(queues, ROUNDS);
		length = LENGTH_MAX;
		talk(queues, ROUNDS / 10);
	}
	return finish();
}
