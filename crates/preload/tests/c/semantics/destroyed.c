/* Who destroys a queue pair sees none of its requests flushed, nor does a thread that polls its
 * completion queue, nor is there an event; what had failed before may have been seen. */
#include "pair.h"

#include <pthread.h>
#include <stdatomic.h>

enum { ROUNDS = 300, POSTED = 8 };

static atomic_int over;
static struct ibv_cq *watched;

static void *poll_on(void *unused)
{
	struct ibv_wc wc;
	while (!over) {
		int count = ibv_poll_cq(watched, 1, &wc);
		CHECK(count >= 0);
		if (count && wc.status != IBV_WC_SUCCESS)
			fprintf(stderr, "%s\n", ibv_wc_status_str(wc.status));
		CHECK(!count || wc.status == IBV_WC_SUCCESS);
	}
	return unused;
}

static void come_and_go(int round)
{
	struct side c = { make_qp(watched), watched }, d = { make_qp(watched), watched };
	struct ibv_sge sge = place(0, 8);
	struct ibv_recv_wr wr = { .wr_id = 5, .sg_list = &sge, .num_sge = 1 }, *bad;
	join(c.qp, d.qp);
	/* Sends without receives stay posted, and so do receives without sends. */
	for (int i = 0; i < POSTED; i++) {
		post(c, IBV_WR_SEND, i, IBV_SEND_SIGNALED, 0, 8, 0);
		if (!c.qp->srq)
			CHECK(ibv_post_recv(c.qp, &wr, &bad) == 0);
	}
	CHECK(ibv_destroy_qp(c.qp) == 0);
	/* The end of a peer flushes what this side has posted. */
	if (round % 2)
		CHECK(ibv_destroy_qp(d.qp) == 0);
	else
		CHECK(modify(d.qp, IBV_QPS_RESET) == 0 && ibv_destroy_qp(d.qp) == 0);
}

int main(int argc, char **argv)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_async_event event;
	pthread_t thread;
	begin(argc, argv);
	watched = make_cq(256);
	CHECK(pthread_create(&thread, NULL, poll_on, NULL) == 0);
	for (int round = 0; round < ROUNDS; round++)
		come_and_go(round);
	struct ibv_srq *srq = wanted.srq = ibv_create_srq(pd, &init);
	CHECK(srq);
	for (int round = 0; round < 10; round++)
		come_and_go(round);
	over = 1;
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(ibv_get_async_event(context, &event) == -1 && errno == EAGAIN);
	CHECK(ibv_destroy_cq(watched) == 0 && ibv_destroy_srq(srq) == 0);
	return finish();
}
