/* Two ends that do nothing but poll find out whatever one of them does wrong: no other call is
 * needed for it. */
#include "pair.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <time.h>

/* Longer than any pause after which somebody else looks after a connection that is not polled. One
 * that learns late does so after a second in which two threads poll: the rounds together then take
 * four times the limit, which is of processor time, since others may use the machine. */
enum { CALM_MS = 20, ROUNDS = 120, LIMIT_S = 60 };

static atomic_int over;

static void *poll_on(void *cq)
{
	struct ibv_wc wc;
	while (!atomic_load(&over))
		CHECK(ibv_poll_cq(cq, 1, &wc) >= 0);
	return NULL;
}

/* Polls and finds nothing. */
static void poll_calmly(struct ibv_cq *cq)
{
	struct timespec start, now;
	struct ibv_wc wc;
	clock_gettime(CLOCK_MONOTONIC, &start);
	do {
		CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 <
		 CALM_MS);
}

/* Posts what fails, once both ends have polled for a while, and polls until it has. */
static void fails(struct ibv_send_wr *wr, enum ibv_wc_status status)
{
	struct ibv_send_wr *bad;
	pthread_t other;
	atomic_store(&over, 0);
	post(a, IBV_WR_RDMA_WRITE, 1, IBV_SEND_SIGNALED, 0, 8, 64);
	ends(a, 1, IBV_WC_SUCCESS);
	CHECK(pthread_create(&other, NULL, poll_on, b.cq) == 0);
	poll_calmly(a.cq);
	CHECK(ibv_post_send(a.qp, wr, &bad) == 0);
	ends(a, wr->wr_id, status);
	atomic_store(&over, 1);
	CHECK(pthread_join(other, NULL) == 0);
}

static void a_wrong_key(void)
{
	pair();
	struct ibv_sge sge = place(0, 8);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, 2, IBV_SEND_SIGNALED, &sge, 64);
	wr.wr.rdma.rkey ^= 0x100;
	fails(&wr, IBV_WC_REM_ACCESS_ERR);
	part();
}

/* An RNIC's message without a receive ends the connection instead. */
static void no_receive(void)
{
	a.cq = make_cq(256), b.cq = make_cq(256);
	a.qp = make_qp(a.cq), b.qp = make_qp(b.cq);
	to_init(a.qp), to_init(b.qp);
	to_rtr(a.qp, b.qp->qp_num), to_rtr(b.qp, a.qp->qp_num);
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 1,
		.max_rd_atomic = 16,
	};
	CHECK(!ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
						  IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						  IBV_QP_MAX_QP_RD_ATOMIC));
	to_rts(b.qp);
	struct ibv_sge sge = place(0, 8);
	struct ibv_send_wr wr = request(IBV_WR_SEND, 3, IBV_SEND_SIGNALED, &sge, 0);
	fails(&wr, IBV_WC_RNR_RETRY_EXC_ERR);
	part();
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	CHECK(!setitimer(ITIMER_PROF, &(struct itimerval){ .it_value.tv_sec = LIMIT_S }, NULL));
	for (int i = 0; i < ROUNDS; i++) {
		a_wrong_key();
		if (adapter)
			no_receive();
	}
	return finish();
}
