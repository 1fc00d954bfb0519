/* A message that finds no receive waits, alone: other queue pairs go on, and on an adapter so do
 * answers to the one that has no receive. */
#include "pair.h"

enum { LENGTH = 256 << 10, ROUNDS = 20 };

static void only_one_waits(void)
{
	struct side c = { make_qp(a.cq), a.cq }, d = { make_qp(b.cq), b.cq };
	join(c.qp, d.qp);
	post(a, IBV_WR_SEND, 1, IBV_SEND_SIGNALED, 0, 8, 0);
	for (int i = 0; i < 20; i++) {
		post(c, IBV_WR_RDMA_WRITE, 2, IBV_SEND_SIGNALED, 0, 8, 64);
		while (next(a.cq).wr_id != 2)
			;
	}
	CHECK(ibv_destroy_qp(c.qp) == 0 && ibv_destroy_qp(d.qp) == 0);
}

static void answers_pass(void)
{
	post(a, IBV_WR_SEND, 1, IBV_SEND_SIGNALED, 0, 8, 0);
	for (int i = 0; i < 20; i++) {
		post(b, IBV_WR_RDMA_READ, 3, IBV_SEND_SIGNALED, 128, 8, 64);
		ends(b, 3, IBV_WC_SUCCESS);
	}
	receive(b, 4, 0, 8);
	ends(b, 4, IBV_WC_SUCCESS);
	ends(a, 1, IBV_WC_SUCCESS);
}

/* A Write with immediate data takes a receive, and all of it is there then. */
static void a_write_takes_a_receive(void)
{
	struct ibv_sge sge = place(1 << 20, LENGTH);
	struct ibv_send_wr *bad;
	memset(memory + (1 << 20), 7, LENGTH);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE_WITH_IMM, 5, IBV_SEND_SIGNALED, &sge,
					2 << 20);
	wr.imm_data = 0x04030201;
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	receive(b, 6, 0, 0);
	struct ibv_wc wc = ends(b, 6, IBV_WC_SUCCESS);
	CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.byte_len == LENGTH);
	CHECK(wc.wc_flags == IBV_WC_WITH_IMM && wc.imm_data == 0x04030201);
	CHECK(!memcmp(memory + (1 << 20), memory + (2 << 20), LENGTH));
	ends(a, 5, IBV_WC_SUCCESS);
	/* There is none left. */
	post(a, IBV_WR_SEND, 7, IBV_SEND_SIGNALED, 0, 8, 0);
	CHECK(ibv_poll_cq(b.cq, 1, &wc) == 0);
	receive(b, 8, 0, 8);
	ends(b, 8, IBV_WC_SUCCESS);
	ends(a, 7, IBV_WC_SUCCESS);
}

/* A message that its sender gives up is not for a receive that comes later. */
static void what_is_given_up_does_not_arrive(void)
{
	struct ibv_qp_attr impatient = { .rnr_retry = 0 };
	CHECK(ibv_modify_qp(a.qp, &(struct ibv_qp_attr) { .qp_state = IBV_QPS_SQD },
			    IBV_QP_STATE) == 0);
	CHECK(ibv_modify_qp(a.qp, &impatient, IBV_QP_RNR_RETRY) == 0);
	CHECK(ibv_modify_qp(a.qp, &(struct ibv_qp_attr) { .qp_state = IBV_QPS_RTS },
			    IBV_QP_STATE) == 0);
	for (int i = 0; i < 3; i++)
		post(a, IBV_WR_SEND, i, IBV_SEND_SIGNALED, 0, 8, 0);
	ends(a, 0, IBV_WC_RNR_RETRY_EXC_ERR);
	ends(a, 1, IBV_WC_WR_FLUSH_ERR);
	ends(a, 2, IBV_WC_WR_FLUSH_ERR);
	for (int i = 0; i < 3; i++)
		receive(b, i, 0, 8);
	CHECK(ibv_modify_qp(b.qp, &(struct ibv_qp_attr) { .qp_state = IBV_QPS_ERR },
			    IBV_QP_STATE) == 0);
	for (int i = 0; i < 3; i++)
		ends(b, i, IBV_WC_WR_FLUSH_ERR);
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	pair();
	only_one_waits();
	part();
	pair();
	if (adapter)
		answers_pass();
	a_write_takes_a_receive();
	part();
	for (int i = 0; adapter && i < ROUNDS; i++) {
		pair();
		what_is_given_up_does_not_arrive();
		part();
	}
	return finish();
}
