/* Queue pairs for datagrams: what arrives is whole, from who it says, and for who it names. */
#include "device.h"

enum { GRH = 40, ROOM = 4096 + GRH, KEY = 0x11111111 };

static struct ibv_context *context;
static struct ibv_pd *pd;
static union ibv_gid gid;
static int index_of_gid;
static char sent[8192], got[ROOM];
static struct ibv_mr *out, *in;

struct side {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_ah *ah;
};

static void modify(struct ibv_qp *qp, enum ibv_qp_state state, int mask)
{
	struct ibv_qp_attr attr = { .qp_state = state, .port_num = 1, .qkey = KEY };
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | mask) == 0 && qp->state == state);
}

static void start(struct ibv_qp *qp)
{
	modify(qp, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
	modify(qp, IBV_QPS_RTR, 0);
	modify(qp, IBV_QPS_RTS, IBV_QP_SQ_PSN);
}

static struct side make(void)
{
	struct side side = { .cq = ibv_create_cq(context, 64, NULL, NULL, 0) };
	struct ibv_qp_init_attr_ex init = {
		.send_cq = side.cq, .recv_cq = side.cq, .qp_type = IBV_QPT_UD, .pd = pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM,
		.cap = { .max_send_wr = 32, .max_recv_wr = 32, .max_send_sge = 1,
			 .max_recv_sge = 1, .max_inline_data = 64 },
	};
	side.qp = ibv_create_qp_ex(context, &init);
	CHECK(side.cq && side.qp);
	start(side.qp);
	struct ibv_ah_attr attr = {
		.is_global = 1, .port_num = 1, .grh = { .dgid = gid, .sgid_index = index_of_gid },
	};
	side.ah = ibv_create_ah(pd, &attr);
	CHECK(side.ah);
	return side;
}

static void end(struct side *side)
{
	CHECK(ibv_destroy_qp(side->qp) == 0 && ibv_destroy_cq(side->cq) == 0);
	CHECK(ibv_destroy_ah(side->ah) == 0);
}

static void receive(struct side *side, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)got, length, in->lkey };
	struct ibv_recv_wr wr = { .wr_id = 7, .sg_list = &sge, .num_sge = 1 }, *bad;
	CHECK(ibv_post_recv(side->qp, &wr, &bad) == 0);
}

static struct ibv_wc next(struct side *side)
{
	struct ibv_wc wc;
	int count;
	while (!(count = ibv_poll_cq(side->cq, 1, &wc)))
		;
	CHECK(count == 1);
	return wc;
}

static int send_to(struct side *from, uint32_t number, uint32_t key, uint32_t length, int flags)
{
	struct ibv_sge sge = { (uintptr_t)sent, length, out->lkey };
	struct ibv_send_wr wr = {
		.wr_id = 9, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_IMM,
		.send_flags = IBV_SEND_SIGNALED | flags, .imm_data = 0x04030201,
		.wr.ud = { .ah = from->ah, .remote_qpn = number, .remote_qkey = key },
	}, *bad;
	return ibv_post_send(from->qp, &wr, &bad);
}

static void deliver(struct side *a, struct side *b, uint32_t length, int flags)
{
	memset(got, 0, sizeof(got));
	receive(b, ROOM);
	CHECK(send_to(a, b->qp->qp_num, KEY, length, flags) == 0);
	struct ibv_wc wc = next(a);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_SEND && wc.wr_id == 9);
	wc = next(b);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.wr_id == 7);
	CHECK(wc.byte_len == length + GRH && wc.src_qp == a->qp->qp_num);
	CHECK(wc.wc_flags == (IBV_WC_GRH | IBV_WC_WITH_IMM) && wc.imm_data == 0x04030201);
	CHECK(!memcmp(got + GRH, sent, length) && (wc.sl & 7) == 2);

	/* The header before the payload leads back to the sender. */
	struct ibv_ah_attr back;
	CHECK(ibv_init_ah_from_wc(context, 1, &wc, (struct ibv_grh *)got, &back) == 0);
	CHECK(!memcmp(&back.grh.dgid, &gid, sizeof(gid)));
	CHECK(back.grh.sgid_index == index_of_gid);
}

/* What is for another key or another queue pair is nothing; what is too long leaves silently. */
static void refuse(struct side *a, struct side *b)
{
	receive(b, ROOM);
	CHECK(send_to(a, b->qp->qp_num, KEY + 1, 1, 0) == 0);
	CHECK(send_to(a, b->qp->qp_num ^ 1, KEY, 1, 0) == 0);
	CHECK(send_to(a, b->qp->qp_num, KEY, 4097, 0) == 0);
	for (int i = 0; i < 3; i++)
		CHECK(next(a).status == IBV_WC_SUCCESS);
	CHECK(send_to(a, b->qp->qp_num, 0x80000000, 2, 0) == 0 && next(a).status == IBV_WC_SUCCESS);
	struct ibv_wc wc = next(b);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.byte_len == GRH + 2);
	CHECK(ibv_poll_cq(b->cq, 1, &wc) == 0);
}

static void wait_for_receive(struct side *a, struct side *b)
{
	for (int i = 1; i <= 3; i++)
		CHECK(send_to(a, b->qp->qp_num, KEY, i, 0) == 0 && next(a).status == IBV_WC_SUCCESS);
	struct ibv_wc wc;
	CHECK(ibv_poll_cq(b->cq, 1, &wc) == 0);
	for (int i = 1; i <= 3; i++) {
		receive(b, i == 2 ? GRH : ROOM);
		wc = next(b);
		CHECK(wc.status == (i == 2 ? IBV_WC_LOC_LEN_ERR : IBV_WC_SUCCESS));
		CHECK(i == 2 || wc.byte_len == GRH + i);
	}
}

/* A key that is none stops the sends; the program lets them go on. */
static void fail_and_mend(struct side *a, struct side *b)
{
	uint32_t key = out->lkey;
	out->lkey = key + 1;
	CHECK(send_to(a, b->qp->qp_num, KEY, 1, 0) == 0);
	CHECK(next(a).status == IBV_WC_LOC_PROT_ERR);
	out->lkey = key;
	CHECK(send_to(a, b->qp->qp_num, KEY, 1, 0) == 0 && next(a).status == IBV_WC_WR_FLUSH_ERR);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(ibv_query_qp(a->qp, &attr, IBV_QP_STATE, &init) == 0);
	CHECK(attr.qp_state == IBV_QPS_SQE);
	modify(a->qp, IBV_QPS_RTS, 0);
	deliver(a, b, 3, 0);
}

static void builders(struct side *a, struct side *b)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(a->qp);
	receive(b, ROOM);
	ibv_wr_start(qp);
	qp->wr_id = 5;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(qp);
	ibv_wr_set_ud_addr(qp, a->ah, b->qp->qp_num, KEY);
	ibv_wr_set_inline_data(qp, sent, 5);
	CHECK(ibv_wr_complete(qp) == 0);
	struct ibv_wc wc = next(a);
	CHECK(wc.wr_id == 5 && wc.status == IBV_WC_SUCCESS);
	wc = next(b);
	CHECK(wc.byte_len == GRH + 5 && wc.wc_flags == IBV_WC_GRH);
}

static void begin_anew(struct side *a, struct side *b)
{
	CHECK(send_to(a, b->qp->qp_num, KEY, 1, 0) == 0 && next(a).status == IBV_WC_SUCCESS);
	modify(b->qp, IBV_QPS_RESET, 0);
	start(b->qp);
	deliver(a, b, 11, 0);
	receive(b, ROOM);
	modify(b->qp, IBV_QPS_ERR, 0);
	CHECK(next(b).status == IBV_WC_WR_FLUSH_ERR);
}

int main(void)
{
	context = ibv_open_device(device_named("weft0"));
	CHECK(context);
	struct ibv_gid_entry table[128];
	int rows = ibv_query_gid_table(context, table, 128, 0);
	static const uint8_t loopback[16] = { [10] = 0xff, 0xff, 127, 0, 0, 1 };
	for (int i = 0; i < rows; i++)
		if (!memcmp(table[i].gid.raw, loopback, sizeof(loopback)))
			index_of_gid = i, gid = table[i].gid;
	pd = ibv_alloc_pd(context);
	out = ibv_reg_mr(pd, sent, sizeof(sent), 0);
	in = ibv_reg_mr(pd, got, sizeof(got), IBV_ACCESS_LOCAL_WRITE);
	CHECK(pd && out && in);
	for (size_t i = 0; i < sizeof(sent); i++)
		sent[i] = i * 7;

	struct side a = make(), b = make();
	deliver(&a, &b, 0, 0);
	deliver(&a, &b, 64, IBV_SEND_INLINE);
	deliver(&b, &a, 4096, 0);
	refuse(&a, &b);
	wait_for_receive(&a, &b);
	fail_and_mend(&a, &b);
	builders(&a, &b);
	begin_anew(&a, &b);
	end(&a);
	end(&b);
	CHECK(ibv_dereg_mr(out) == 0 && ibv_dereg_mr(in) == 0 && ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_close_device(context) == 0);
	return 0;
}
