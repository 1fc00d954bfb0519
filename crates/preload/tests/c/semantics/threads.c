/* Sixty-four threads, each with a queue pair, post and poll one completion queue: every request
 * completes once, and somebody sees it. */
#include "pair.h"

#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 64, EACH = 100, DEPTH = 8 };

static struct side sides[THREADS][2];
static struct ibv_cq *shared;
static atomic_int done[THREADS], total;
static atomic_char seen[THREADS][EACH];

static void *work(void *argument)
{
	int own = (uintptr_t)argument, posted = 0;
	struct ibv_wc wcs[4];
	while (total < THREADS * EACH) {
		for (; posted < EACH && posted < done[own] + DEPTH; posted++)
			post(sides[own][0], IBV_WR_RDMA_WRITE, own * EACH + posted,
			     IBV_SEND_SIGNALED, 0, 512, 1024 * (1 + own));
		int count = ibv_poll_cq(shared, 4, wcs);
		CHECK(count >= 0);
		for (int i = 0; i < count; i++) {
			int thread = wcs[i].wr_id / EACH;
			CHECK(wcs[i].status == IBV_WC_SUCCESS);
			CHECK(wcs[i].qp_num == sides[thread][0].qp->qp_num);
			CHECK(!atomic_exchange(&seen[thread][wcs[i].wr_id % EACH], 1));
			done[thread]++;
			total++;
		}
	}
	CHECK(posted == EACH);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	begin(argc, argv);
	wanted.cap.max_send_wr = DEPTH;
	shared = make_cq(THREADS * DEPTH);
	for (int i = 0; i < THREADS; i++) {
		for (int end = 0; end < 2; end++)
			sides[i][end] = (struct side){ make_qp(shared), shared };
		join(sides[i][0].qp, sides[i][1].qp);
	}
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	for (int i = 0; i < 2 * THREADS; i++)
		CHECK(ibv_destroy_qp(sides[i / 2][i % 2].qp) == 0);
	CHECK(ibv_destroy_cq(shared) == 0);
	return finish();
}
