/* Datagrams to a group fill receives of all its members that have the key. */
#include "device.h"

#include <arpa/inet.h>
#include <unistd.h>

enum { MEMBERS = 3, OCTETS = 64, HEADER = 40, QKEY = 0x11223344, OTHER_QKEY = 5 };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cqs[MEMBERS];
static struct ibv_qp *qps[MEMBERS];
static char memory[MEMBERS + 1][HEADER + OCTETS];
static struct ibv_mr *mr;

static struct ibv_qp *make(struct ibv_cq *cq, enum ibv_qp_type type, uint32_t qkey)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = type, .sq_sig_all = 1,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(qp);
	if (type != IBV_QPT_UD)
		return qp;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = qkey };
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					IBV_QP_QKEY));
	attr.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
	return qp;
}

static void post_recv(int member)
{
	struct ibv_sge sge = { (uintptr_t)memory[member], sizeof(memory[member]), mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 100 + member, .sg_list = &sge, .num_sge = 1 }, *bad;
	CHECK(!ibv_post_recv(qps[member], &wr, &bad));
}

/* From the first member. */
static void send_to(struct ibv_ah *ah, uint32_t number, uint32_t qkey, char fill)
{
	struct ibv_sge sge = { (uintptr_t)memory[MEMBERS], OCTETS, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	memset(memory[MEMBERS], fill, OCTETS);
	wr.wr.ud.ah = ah, wr.wr.ud.remote_qpn = number, wr.wr.ud.remote_qkey = qkey;
	CHECK(!ibv_post_send(qps[0], &wr, &bad));
}

/* The next receive; sends of the first member complete in between. */
static struct ibv_wc received(int member)
{
	struct ibv_wc wc;
	for (;;) {
		int n = ibv_poll_cq(cqs[member], 1, &wc);
		CHECK(n >= 0 && (n == 0 || wc.status == IBV_WC_SUCCESS));
		if (n && wc.opcode == IBV_WC_RECV)
			return wc;
	}
}

static void nothing(int member)
{
	struct ibv_wc wc;
	for (int i = 0; i < 2000; i++)
		CHECK(!ibv_poll_cq(cqs[member], 1, &wc) || wc.opcode != IBV_WC_RECV);
}

static struct ibv_ah *way_to(const union ibv_gid *gid, int row)
{
	struct ibv_ah_attr attr = {
		.is_global = 1, .port_num = 1,
		.grh = { .dgid = *gid, .sgid_index = row, .hop_limit = 1 },
	};
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);
	CHECK(ah);
	return ah;
}

static void traffic(const union ibv_gid *group, const union ibv_gid *own, int row)
{
	struct ibv_ah *to_group = way_to(group, row), *to_self = way_to(own, row);
	for (int i = 0; i < MEMBERS; i++) {
		CHECK(!ibv_attach_mcast(qps[i], group, 0) && !ibv_attach_mcast(qps[i], group, 0));
		post_recv(i);
	}
	/* The third has another key; the sender is a member, too. */
	send_to(to_group, 0xffffff, QKEY, 'a');
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc = received(i);
		CHECK(wc.byte_len == HEADER + OCTETS && wc.wr_id == 100 + i);
		CHECK(wc.qp_num == qps[i]->qp_num && wc.src_qp == qps[0]->qp_num);
		CHECK(wc.wc_flags & IBV_WC_GRH && memory[i][HEADER + OCTETS - 1] == 'a');
		const char *at = memory[i] + (group->raw[0] ? 24 : 36);
		CHECK(!memcmp(at, group->raw + (group->raw[0] ? 0 : 12), group->raw[0] ? 16 : 4));
	}
	send_to(to_group, 0xffffff, OTHER_QKEY, 'b');
	CHECK(received(2).byte_len == HEADER + OCTETS && memory[2][HEADER] == 'b');

	/* What names the group but did not come to it is not for its members. */
	post_recv(1);
	send_to(to_self, 0xffffff, QKEY, 'x');
	nothing(1);

	/* No longer members: only what is for themselves comes. */
	for (int i = 0; i < MEMBERS; i++) {
		CHECK(!ibv_detach_mcast(qps[i], group, 0));
		CHECK(ibv_detach_mcast(qps[i], group, 0) == EINVAL);
	}
	send_to(to_group, 0xffffff, QKEY, 'c');
	send_to(to_self, qps[1]->qp_num, QKEY, 'd');
	CHECK(received(1).wr_id == 101 && memory[1][HEADER] == 'd');
	post_recv(1);
	nothing(1);
	send_to(to_self, qps[1]->qp_num, QKEY, 'e');
	CHECK(received(1).wr_id == 101 && memory[1][HEADER] == 'e');
	CHECK(!ibv_destroy_ah(to_group) && !ibv_destroy_ah(to_self));
}

static void refused(const union ibv_gid *group, const union ibv_gid *own)
{
	struct ibv_qp *connected = make(cqs[0], IBV_QPT_RC, 0);
	CHECK(ibv_attach_mcast(connected, group, 0) == EINVAL);
	CHECK(ibv_attach_mcast(qps[0], own, 0) == EINVAL);
	CHECK(!ibv_destroy_qp(connected));
}

int main(void)
{
	struct ibv_gid_entry table[128];
	struct ibv_device_attr attr;
	char text[64];
	CHECK((context = ibv_open_device(device_named("weft0"))));
	CHECK(!ibv_query_device(context, &attr) && attr.max_mcast_grp > 0);
	CHECK((pd = ibv_alloc_pd(context)));
	CHECK((mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE)));
	for (int i = 0; i < MEMBERS; i++) {
		CHECK((cqs[i] = ibv_create_cq(context, 64, NULL, NULL, 0)));
		qps[i] = make(cqs[i], IBV_QPT_UD, i == 2 ? OTHER_QKEY : QKEY);
	}
	int rows = ibv_query_gid_table(context, table, 128, 0), done = 0;
	for (int i = 0; i < rows; i++) {
		union ibv_gid group = { { 0 } }, own = table[i].gid;
		int v4 = own.raw[10] == 0xff && own.raw[11] == 0xff && !own.raw[0];
		/* Each run of the test has groups of its own. */
		unsigned pid = getpid();
		snprintf(text, sizeof(text), v4 ? "::ffff:239.77.%u.%u" : "ff0e::77:%x:%x",
			 pid >> 8 & 255, pid & 255);
		CHECK(inet_pton(AF_INET6, text, group.raw) == 1);
		/* IPv6 knows no groups on loopback, and link-local addresses may be on any link. */
		if (!v4 && (own.raw[0] == 0 || own.raw[0] == 0xfe))
			continue;
		traffic(&group, &own, table[i].gid_index);
		refused(&group, &own);
		done++;
	}
	CHECK(done > 0);
	for (int i = 0; i < MEMBERS; i++)
		CHECK(!ibv_destroy_qp(qps[i]) && !ibv_destroy_cq(cqs[i]));
	CHECK(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
	return 0;
}
