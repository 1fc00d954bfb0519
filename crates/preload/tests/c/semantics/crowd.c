/* Many connections of one completion queue: each is served, however many are active, and whether
 * or not the queue is ever found empty. */
#include "pair.h"

#include <pthread.h>

enum { PAIRS = 40, ROUNDS = 100, BATCH = 16, ANSWERED = 1000, WRITTEN = 2000 };

static struct ibv_cq *cqs[2];
static struct side sides[2][PAIRS];
/* What the other thread is to do: send on the last connection, or end. */
static int calls, is_over;

static void take(struct side side, int index)
{
	receive(side, index, 4096 + 64 * index, 64);
}

static void *answer(void *unused)
{
	struct ibv_wc wcs[BATCH];
	(void)unused;
	while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE)) {
		int count = ibv_poll_cq(cqs[1], BATCH, wcs);
		CHECK(count >= 0);
		for (int i = 0; i < count; i++) {
			CHECK(wcs[i].status == IBV_WC_SUCCESS);
			if (wcs[i].wr_id >= ANSWERED)
				continue;
			take(sides[1][wcs[i].wr_id], wcs[i].wr_id);
			post(sides[1][wcs[i].wr_id], IBV_WR_SEND, ANSWERED, IBV_SEND_SIGNALED, 0, 64, 0);
		}
		if (__atomic_exchange_n(&calls, 0, __ATOMIC_ACQ_REL))
			post(sides[1][PAIRS - 1], IBV_WR_SEND, ANSWERED, IBV_SEND_SIGNALED, 0, 64, 0);
	}
	return NULL;
}

static void say(int index)
{
	post(sides[0][index], IBV_WR_SEND, ANSWERED, IBV_SEND_SIGNALED, 0, 64, 0);
}

/* A message on each connection, again and again. */
static void to_and_fro(void)
{
	int rounds[PAIRS] = { 0 };
	for (int i = 0; i < PAIRS; i++)
		say(i);
	for (int left = PAIRS; left;) {
		struct ibv_wc wc = next(cqs[0]);
		CHECK(wc.status == IBV_WC_SUCCESS);
		if (wc.wr_id >= ANSWERED)
			continue;
		take(sides[0][wc.wr_id], wc.wr_id);
		if (++rounds[wc.wr_id] < ROUNDS)
			say(wc.wr_id);
		else
			left--;
	}
}

/* What comes on one connection is found although requests on another one go on completing. */
static void beside_a_stream(void)
{
	int outstanding = 0;
	__atomic_store_n(&calls, 1, __ATOMIC_RELEASE);
	for (struct ibv_wc wc;;) {
		for (; outstanding < 8; outstanding++)
			post(sides[0][0], IBV_WR_RDMA_WRITE, WRITTEN, IBV_SEND_SIGNALED, 0, 8, 0);
		int count = ibv_poll_cq(cqs[0], 1, &wc);
		CHECK(count >= 0);
		if (!count)
			continue;
		CHECK(wc.status == IBV_WC_SUCCESS);
		outstanding -= wc.wr_id == WRITTEN;
		if (wc.wr_id == PAIRS - 1)
			break;
	}
	take(sides[0][PAIRS - 1], PAIRS - 1);
	while (outstanding)
		outstanding -= next(cqs[0]).wr_id == WRITTEN;
}

int main(int argc, char **argv)
{
	pthread_t other;
	begin(argc, argv);
	for (int s = 0; s < 2; s++)
		cqs[s] = make_cq(PAIRS * 32);
	for (int i = 0; i < PAIRS; i++) {
		for (int s = 0; s < 2; s++)
			sides[s][i] = (struct side){ make_qp(cqs[s]), cqs[s] };
		join(sides[0][i].qp, sides[1][i].qp);
		for (int s = 0; s < 2; s++)
			take(sides[s][i], i);
	}
	CHECK(pthread_create(&other, NULL, answer, NULL) == 0);
	to_and_fro();
	for (int i = 0; i < 20; i++)
		beside_a_stream();
	__atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
	CHECK(pthread_join(other, NULL) == 0);
	for (int i = 0; i < PAIRS; i++)
		for (int s = 0; s < 2; s++)
			CHECK(ibv_destroy_qp(sides[s][i].qp) == 0);
	CHECK(ibv_destroy_cq(cqs[0]) == 0 && ibv_destroy_cq(cqs[1]) == 0);
	return finish();
}
