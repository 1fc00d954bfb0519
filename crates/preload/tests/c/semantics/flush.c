/* A queue pair that fails flushes what is posted, and what is posted later; not what is in a shared
 * receive queue, of which it says that it has taken its last. */
#include "pair.h"

static void by_the_program(void)
{
	pair();
	for (int i = 0; i < 3; i++)
		receive(a, i, 0, 8);
	CHECK(modify(a.qp, IBV_QPS_ERR) == 0 && a.qp->state == IBV_QPS_ERR);
	for (int i = 0; i < 3; i++)
		CHECK(ends(a, i, IBV_WC_WR_FLUSH_ERR).opcode & IBV_WC_RECV);
	receive(a, 10, 0, 8);
	post(a, IBV_WR_SEND, 11, 0, 0, 8, 0);
	ends(a, 10, IBV_WC_WR_FLUSH_ERR);
	ends(a, 11, IBV_WC_WR_FLUSH_ERR);
	part();
}

/* A refusal ends both sides: the receives of the one that refused are flushed too. */
static void by_the_peer(void)
{
	pair();
	receive(a, 1, 0, 8);
	receive(b, 2, 0, 8);
	struct ibv_sge sge = place(0, 8);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, 3, 0, &sge, ROOM), *bad;
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	ends(a, 3, IBV_WC_REM_ACCESS_ERR);
	ends(a, 1, IBV_WC_WR_FLUSH_ERR);
	ends(b, 2, IBV_WC_WR_FLUSH_ERR);
	CHECK(state(a.qp) == IBV_QPS_ERR && state(b.qp) == IBV_QPS_ERR);
	part();
}

/* What has arrived is flushed too where something before it is not complete. */
static void behind_reads(void)
{
	enum { READS = 8, LAST = READS + 1, EACH = 1 << 20 };
	struct ibv_wc wc;
	int failed = 0;
	pair();
	receive(b, LAST, 2 * EACH, 64);
	for (int i = 0; i < READS; i++)
		post(a, IBV_WR_RDMA_READ, i, 0, 0, EACH, EACH);
	post(a, IBV_WR_SEND, READS, 0, 0, 8, 0);
	receive(b, LAST, 2 * EACH, 64);
	post(a, IBV_WR_SEND, LAST, IBV_SEND_SIGNALED, 0, 8, 0);
	for (int i = 0; i < 2; i++)
		ends(b, LAST, IBV_WC_SUCCESS);
	CHECK(modify(a.qp, IBV_QPS_ERR) == 0);
	for (uint64_t before = 0; before != LAST; before = wc.wr_id) {
		wc = next(a.cq);
		CHECK(!failed || wc.wr_id == before + 1);
		CHECK(wc.status == (failed || wc.wr_id != LAST ? IBV_WC_WR_FLUSH_ERR :
								  IBV_WC_SUCCESS));
		failed = wc.status != IBV_WC_SUCCESS;
	}
	part();
}

static void shared(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq = wanted.srq = ibv_create_srq(pd, &init);
	CHECK(srq);
	pair();
	struct ibv_sge sge = place(0, 8);
	struct ibv_recv_wr wr = { .wr_id = 5, .sg_list = &sge, .num_sge = 1 }, *bad;
	CHECK(ibv_post_srq_recv(srq, &wr, &bad) == 0);
	CHECK(modify(b.qp, IBV_QPS_ERR) == 0);
	struct ibv_async_event event = await(IBV_EVENT_QP_LAST_WQE_REACHED);
	CHECK(event.element.qp == b.qp);
	ibv_ack_async_event(&event);
	struct ibv_wc wc;
	CHECK(ibv_poll_cq(b.cq, 1, &wc) == 0);

	/* The receive serves another queue pair. */
	struct ibv_qp *one = make_qp(a.cq), *other = make_qp(b.cq);
	join(one, other);
	post((struct side){ one, a.cq }, IBV_WR_SEND, 6, IBV_SEND_SIGNALED, 0, 8, 0);
	wc = next(b.cq);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 5 && wc.qp_num == other->qp_num);
	CHECK(ibv_destroy_qp(one) == 0 && ibv_destroy_qp(other) == 0);
	part();
	CHECK(ibv_destroy_srq(srq) == 0);
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	by_the_program();
	by_the_peer();
	behind_reads();
	shared();
	return finish();
}
