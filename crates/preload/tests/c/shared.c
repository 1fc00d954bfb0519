/* Extended reliable connections: one connection serves several shared receive queues. */
#include "device.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { QUEUES = 2, OCTETS = 64 };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_xrcd *domain;
static struct ibv_srq *srqs[QUEUES];
static struct ibv_cq *cqs[QUEUES], *send_cq;
static uint32_t numbers[QUEUES];
static char memory[QUEUES + 1][OCTETS];
static struct ibv_mr *mr;

static struct ibv_xrcd *open_domain(int fd, int flags)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = fd, .oflags = flags,
	};
	return ibv_open_xrcd(context, &attr);
}

static void make_queues(void)
{
	domain = open_domain(-1, O_CREAT);
	CHECK(domain && domain->context == context);
	for (int i = 0; i < QUEUES; i++) {
		CHECK((cqs[i] = ibv_create_cq(context, 8, NULL, NULL, 0)));
		struct ibv_srq_init_attr_ex attr = {
			.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
				     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
			.srq_type = IBV_SRQT_XRC, .pd = pd, .xrcd = domain, .cq = cqs[i],
			.attr = { .max_wr = 4, .max_sge = 1 },
		};
		CHECK((srqs[i] = ibv_create_srq_ex(context, &attr)));
		CHECK(!ibv_get_srq_num(srqs[i], &numbers[i]) && numbers[i] >> 24 == 0);
		CHECK(ibv_destroy_cq(cqs[i]) == EBUSY);
	}
	CHECK(numbers[0] != numbers[1] && ibv_close_xrcd(domain) == EBUSY);
	struct ibv_srq_init_attr plain = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &plain);
	uint32_t number;
	CHECK(srq && ibv_get_srq_num(srq, &number) == EINVAL && !ibv_destroy_srq(srq));
}

static struct ibv_qp *make(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr_ex attr = { .qp_type = type, .sq_sig_all = 1 };
	if (type == IBV_QPT_XRC_RECV) {
		attr.comp_mask = IBV_QP_INIT_ATTR_XRCD;
		attr.xrcd = domain;
	} else {
		attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
		attr.cap = (struct ibv_qp_cap){ .max_send_wr = 4, .max_send_sge = 1 };
		attr.pd = pd;
		attr.send_cq = send_cq;
	}
	struct ibv_qp *qp = ibv_create_qp_ex(context, &attr);
	CHECK(qp && qp->qp_type == type && qp->pd == attr.pd);
	return qp;
}

static void connect_to(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	int receives = qp->qp_type == IBV_QPT_XRC_RECV;
	CHECK(!ibv_modify_qp(qp, &attr, mask));
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer,
		.ah_attr = { .is_global = 1, .port_num = 1 },
	};
	CHECK(!ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid));
	mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (receives)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	CHECK(!ibv_modify_qp(qp, &attr, mask));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .rnr_retry = 7 };
	mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT;
	if (!receives)
		mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	CHECK(!ibv_modify_qp(qp, &attr, mask));
}

static struct ibv_wc completion(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	while (!ibv_poll_cq(cq, 1, &wc))
		;
	return wc;
}

static void post_recv(int queue)
{
	struct ibv_sge sge = { (uintptr_t)memory[queue], OCTETS, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = queue, .sg_list = &sge, .num_sge = 1 }, *bad;
	CHECK(!ibv_post_srq_recv(srqs[queue], &wr, &bad));
}

static void send_to(struct ibv_qp *qp, uint32_t number, int by_builder)
{
	struct ibv_sge sge = { (uintptr_t)memory[QUEUES], OCTETS, mr->lkey };
	memset(memory[QUEUES], number, OCTETS);
	if (by_builder) {
		struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
		ibv_wr_start(ex);
		ibv_wr_send(ex);
		ibv_wr_set_xrc_srqn(ex, number);
		ibv_wr_set_sge(ex, sge.lkey, sge.addr, sge.length);
		CHECK(!ibv_wr_complete(ex));
		return;
	}
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	wr.qp_type.xrc.remote_srqn = number;
	CHECK(!ibv_post_send(qp, &wr, &bad));
}

static void messages(struct ibv_qp *sender, struct ibv_qp *receiver)
{
	for (int i = 0; i < 8; i++) {
		int queue = i / 2 % QUEUES;
		post_recv(queue);
		send_to(sender, numbers[queue], i % 2);
		struct ibv_wc wc = completion(cqs[queue]);
		CHECK(!wc.status && wc.opcode == IBV_WC_RECV && wc.byte_len == OCTETS);
		CHECK(wc.wr_id == queue && wc.qp_num == receiver->qp_num);
		CHECK(wc.src_qp == sender->qp_num);
		CHECK(memory[queue][OCTETS - 1] == (char)numbers[queue]);
		CHECK(!completion(send_cq).status);
	}
	struct ibv_recv_wr wr = { 0 }, *bad;
	CHECK(ibv_post_recv(receiver, &wr, &bad) == EINVAL);
}

/* The queue is destroyed although receives are posted; who names it now is refused. */
static void destroyed(struct ibv_qp *sender)
{
	post_recv(0);
	CHECK(!ibv_destroy_srq(srqs[0]) && !ibv_destroy_cq(cqs[0]));
	send_to(sender, numbers[0], 0);
	CHECK(completion(send_cq).status == IBV_WC_REM_INV_REQ_ERR);
}

static void files(const char *name)
{
	int fd = open(name, O_RDONLY | O_CREAT, 0600);
	CHECK(fd >= 0 && !open_domain(fd, 0) && errno == EAGAIN);
	struct ibv_xrcd *first = open_domain(fd, O_CREAT | O_EXCL), *second = open_domain(fd, 0);
	CHECK(first && second && !open_domain(fd, O_CREAT | O_EXCL) && errno == EINVAL);
	pid_t child = fork();
	if (!child) {
		execl("/proc/self/exe", "shared", name, (char *)NULL);
		_exit(2);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(!ibv_close_xrcd(first) && !ibv_close_xrcd(second));
	CHECK(!open_domain(fd, 0) && errno == EAGAIN && !close(fd) && !unlink(name));
}

int main(int argc, char **argv)
{
	struct ibv_device_attr attr;
	CHECK((context = ibv_open_device(device_named("weft0"))));
	CHECK(!ibv_query_device(context, &attr) && attr.device_cap_flags & IBV_DEVICE_XRC);
	if (argc > 1) {
		CHECK(!open_domain(open(argv[1], O_RDONLY), O_CREAT) && errno == EOPNOTSUPP);
		return 0;
	}
	CHECK((pd = ibv_alloc_pd(context)));
	CHECK((send_cq = ibv_create_cq(context, 8, NULL, NULL, 0)));
	CHECK((mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE)));
	make_queues();
	struct ibv_qp *sender = make(IBV_QPT_XRC_SEND), *receiver = make(IBV_QPT_XRC_RECV);
	connect_to(receiver, sender->qp_num);
	connect_to(sender, receiver->qp_num);
	struct ibv_qp_open_attr other = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
		.qp_num = receiver->qp_num, .xrcd = domain, .qp_type = IBV_QPT_XRC_RECV,
	};
	CHECK(!ibv_open_qp(context, &other) && errno == EOPNOTSUPP);
	messages(sender, receiver);
	destroyed(sender);
	CHECK(!ibv_destroy_qp(sender) && !ibv_destroy_qp(receiver));
	CHECK(!ibv_destroy_srq(srqs[1]) && !ibv_destroy_cq(cqs[1]) && !ibv_destroy_cq(send_cq));
	CHECK(!ibv_close_xrcd(domain) && !ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd));
	files(getenv("FILE"));
	CHECK(!ibv_close_device(context));
	return 0;
}
