/* Uses every object of libibverbs once, without a connection. */
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <unistd.h>

#include "device.h"

static struct ibv_context *context;
static struct ibv_pd *pd;

static void device(void)
{
	int count = -1;
	struct ibv_device **list = ibv_get_device_list(&count);
	CHECK(list && count == 2 && list[2] == NULL);
	struct ibv_device *first = list[0];
	ibv_free_device_list(list);
	list = ibv_get_device_list(NULL);
	CHECK(list[0] == first);
	ibv_free_device_list(list);

	struct ibv_device *rnic = device_named("weft_iw0");
	CHECK(rnic->node_type == IBV_NODE_RNIC && rnic->transport_type == IBV_TRANSPORT_IWARP);
	CHECK(ibv_get_device_guid(rnic) != 0);
	context = ibv_open_device(rnic);
	CHECK(context && context->device == rnic && context->num_comp_vectors >= 1);
}

static void attributes(void)
{
	struct ibv_device_attr plain;
	struct ibv_device_attr_ex extended;
	CHECK(ibv_query_device(context, &plain) == 0 && plain.phys_port_cnt == 1);
	CHECK(ibv_query_device_ex(context, NULL, &extended) == 0);
	CHECK(!memcmp(&plain, &extended.orig_attr, sizeof(plain)) && extended.phys_port_cnt_ex == 1);

	struct ibv_port_attr port;
	CHECK(ibv_query_port(context, 1, &port) == 0);
	CHECK(port.state == IBV_PORT_ACTIVE && port.link_layer == IBV_LINK_LAYER_ETHERNET);
	CHECK(ibv_query_port(context, 2, &port) == EINVAL);

	union ibv_gid gid;
	struct ibv_gid_entry entry, table[64];
	CHECK(ibv_query_gid(context, 1, 0, &gid) == 0);
	CHECK(ibv_query_gid_ex(context, 1, 1, &entry, 0) == 0 && entry.ndev_ifindex > 0);
	CHECK(ibv_query_gid_ex(context, 1, 31, &entry, 0) == ENODATA);
	CHECK(ibv_query_gid(context, 1, 31, &gid) == 0 && gid.global.interface_id == 0);
	CHECK(ibv_query_gid(context, 1, 1000, &gid) == -1);
	CHECK(ibv_query_gid_table(context, table, 64, 0) >= 2);
	CHECK(!memcmp(&table[1].gid, &entry.gid, 0) && table[1].gid_index == 1);
	CHECK(ibv_query_gid_table(context, table, 1, 0) == -EINVAL);

	uint16_t pkey;
	CHECK(ibv_query_pkey(context, 1, 0, &pkey) == 0 && pkey == 0xffff);
	CHECK(ibv_get_pkey_index(context, 1, 0xffff) == 0);
	CHECK(ibv_fork_init() == 0 && ibv_is_fork_initialized() == IBV_FORK_UNNEEDED);
}

static void memory(void)
{
	static char buffer[8192];
	int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	struct ibv_mr *mr = ibv_reg_mr(pd, buffer, sizeof(buffer), all);
	CHECK(mr && mr->lkey == mr->rkey && mr->addr == buffer && mr->length == sizeof(buffer));
	CHECK(ibv_dealloc_pd(pd) == EBUSY);
	uint32_t key = mr->rkey;
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, buffer + 8, 16, 0) == 0);
	CHECK(mr->rkey == key && mr->addr == buffer + 8 && mr->length == 16);
	CHECK(ibv_rereg_mr(mr, 1 << 9, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT);
	CHECK(ibv_dereg_mr(mr) == 0);

	volatile int varying = all;
	mr = ibv_reg_mr(pd, buffer, 1, varying | IBV_ACCESS_RELAXED_ORDERING);
	CHECK(mr && ibv_dereg_mr(mr) == 0);
	mr = ibv_reg_mr_iova(pd, buffer, 64, 0x1000, all);
	CHECK(mr && ibv_dereg_mr(mr) == 0);
	mr = ibv_reg_mr(pd, NULL, 0, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr && ibv_dereg_mr(mr) == 0);
	errno = 0;
	CHECK(!ibv_reg_mr(pd, buffer, 64, IBV_ACCESS_REMOTE_WRITE) && errno == EINVAL);
	CHECK(!ibv_reg_mr(pd, (void *)16, 64, all) && errno == EFAULT);
	mr = ibv_reg_mr(pd, NULL, SIZE_MAX, IBV_ACCESS_ON_DEMAND);
	CHECK(mr && ibv_dereg_mr(mr) == 0);
}

static struct ibv_qp *make_qp(struct ibv_cq *cq, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 3, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1,
			 .max_inline_data = 16 },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(qp && init.cap.max_send_wr >= 3 && init.cap.max_inline_data >= 16);
	CHECK(qp->send_cq == cq && qp->pd == pd && qp->qp_num > 1);
	return qp;
}

static void post_receive(struct ibv_qp *qp, uint64_t wr_id)
{
	struct ibv_recv_wr wr = { .wr_id = wr_id }, *bad = NULL;
	CHECK(ibv_post_recv(qp, &wr, &bad) == 0);
}

static void fail(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0 && qp->state == IBV_QPS_ERR);
}

static void limits(struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC };
	init.cap.max_send_wr = 1 << 30;
	CHECK(!ibv_create_qp(pd, &init) && errno == EINVAL);
	init.cap.max_send_wr = 1;
	init.qp_type = IBV_QPT_UD;
	CHECK(!ibv_create_qp(pd, &init) && errno == EOPNOTSUPP);
	CHECK(!ibv_create_cq(context, 0, NULL, NULL, 0) && errno == EINVAL);
	CHECK(!ibv_create_cq(context, 1 << 30, NULL, NULL, 0) && errno == EINVAL);
	CHECK(!ibv_create_cq(context, 1, NULL, NULL, context->num_comp_vectors) && errno == EINVAL);
}

static void queue_pair(void)
{
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	CHECK(cq && cq->cqe >= 16);
	CHECK(ibv_resize_cq(cq, 32) == 0 && cq->cqe >= 32);
	limits(cq);
	struct ibv_qp *qp = make_qp(cq, NULL);
	CHECK(ibv_qp_to_qp_ex(qp) == NULL && ibv_destroy_cq(cq) == EBUSY);

	struct ibv_qp_attr attr = { .qp_access_flags = IBV_ACCESS_REMOTE_READ };
	struct ibv_qp_init_attr init;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_ACCESS_FLAGS) == 0);
	CHECK(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == 0);
	CHECK(attr.qp_state == IBV_QPS_INIT && attr.qp_access_flags == IBV_ACCESS_REMOTE_READ);
	CHECK(init.send_cq == cq && init.cap.max_recv_wr >= 4 && init.qp_type == IBV_QPT_RC);
	attr.qp_state = IBV_QPS_RTS;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == EINVAL);

	/* Two of a list are fine, the third names more entries than it may. */
	struct ibv_sge sges[2] = { { 0 } };
	struct ibv_recv_wr third = { .wr_id = 3, .sg_list = sges, .num_sge = 2 };
	struct ibv_recv_wr second = { .wr_id = 2, .next = &third };
	struct ibv_recv_wr first = { .wr_id = 1, .next = &second }, *bad = NULL;
	CHECK(ibv_post_recv(qp, &first, &bad) == EINVAL && bad == &third);
	struct ibv_send_wr send = { .wr_id = 9, .opcode = IBV_WR_SEND }, *bad_send = NULL;
	CHECK(ibv_post_send(qp, &send, &bad_send) == EINVAL && bad_send == &send);

	fail(qp);
	CHECK(ibv_post_send(qp, &send, &bad_send) == 0);
	struct ibv_wc wc[8];
	CHECK(ibv_poll_cq(cq, 8, wc) == 3);
	CHECK(wc[0].wr_id == 1 && wc[1].wr_id == 2 && wc[2].wr_id == 9);
	for (int i = 0; i < 3; i++)
		CHECK(wc[i].status == IBV_WC_WR_FLUSH_ERR && wc[i].qp_num == qp->qp_num);
	CHECK(ibv_poll_cq(cq, 8, wc) == 0);
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);
}

struct late_ack {
	struct ibv_cq *cq;
	atomic_int done;
};

static void *acknowledge(void *arg)
{
	struct late_ack *ack = arg;
	atomic_store(&ack->done, 1);
	ibv_ack_cq_events(ack->cq, 1);
	return NULL;
}

static void completion_events(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	CHECK(channel && channel->fd >= 0 && channel->context == context);
	int mine;
	struct ibv_cq *cq = ibv_create_cq(context, 8, &mine, channel, 0), *from = NULL;
	void *word = NULL;
	CHECK(cq && ibv_destroy_comp_channel(channel) == EBUSY);
	CHECK(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
	CHECK(ibv_get_cq_event(channel, &from, &word) == -1 && errno == EAGAIN);

	struct ibv_qp *qp = make_qp(cq, NULL);
	CHECK(ibv_req_notify_cq(cq, 0) == 0);
	post_receive(qp, 1);
	post_receive(qp, 2);
	fail(qp);
	struct pollfd waiting = { .fd = channel->fd, .events = POLLIN };
	CHECK(poll(&waiting, 1, 10000) == 1);
	CHECK(ibv_get_cq_event(channel, &from, &word) == 0 && from == cq && word == &mine);
	CHECK(ibv_get_cq_event(channel, &from, &word) == -1 && errno == EAGAIN);

	/* A queued event of a queue that is destroyed is never seen. */
	CHECK(ibv_req_notify_cq(cq, 0) == 0);
	post_receive(qp, 3);
	CHECK(poll(&waiting, 1, 10000) == 1);
	CHECK(ibv_destroy_qp(qp) == 0);
	struct late_ack ack = { .cq = cq };
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, acknowledge, &ack) == 0);
	CHECK(ibv_destroy_cq(cq) == 0 && atomic_load(&ack.done) == 1);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(poll(&waiting, 1, 0) == 0);
	CHECK(ibv_get_cq_event(channel, &from, &word) == -1 && errno == EAGAIN);
	CHECK(ibv_destroy_comp_channel(channel) == 0);
}

static void on_signal(int number)
{
	(void)number;
}

/* A reader that waits is interrupted, as by any read. */
static void interrupted(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, channel, 0), *from;
	struct sigaction action = { .sa_handler = on_signal };
	/* Again and again, in case the first comes before the read. */
	struct itimerval often = { { 0, 5000 }, { 0, 5000 } }, never = { { 0, 0 }, { 0, 0 } };
	void *word;
	CHECK(sigaction(SIGALRM, &action, NULL) == 0);
	CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
	CHECK(ibv_get_cq_event(channel, &from, &word) == -1 && errno == EINTR);
	CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
	CHECK(ibv_destroy_cq(cq) == 0 && ibv_destroy_comp_channel(channel) == 0);
}

static void shared_receives(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &init);
	CHECK(srq && init.attr.max_wr >= 4 && init.attr.max_sge >= 1);
	struct ibv_recv_wr wr = { .wr_id = 1 }, *bad;
	CHECK(ibv_post_srq_recv(srq, &wr, &bad) == 0);
	struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	struct ibv_qp *qp = make_qp(cq, srq);
	CHECK(qp->srq == srq && ibv_destroy_srq(srq) == EBUSY);
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);

	/* Fewer receives than the limit: the event comes at once. */
	CHECK(fcntl(context->async_fd, F_SETFL, O_NONBLOCK) == 0);
	struct ibv_async_event event;
	CHECK(ibv_get_async_event(context, &event) == -1 && errno == EAGAIN);
	struct ibv_srq_attr attr = { .srq_limit = 2 };
	CHECK(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT) == 0);
	CHECK(ibv_get_async_event(context, &event) == 0);
	CHECK(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && event.element.srq == srq);
	ibv_ack_async_event(&event);
	CHECK(ibv_query_srq(srq, &attr) == 0 && attr.srq_limit == 0);
	CHECK(ibv_destroy_srq(srq) == 0);
}

static void refused(void)
{
	struct ibv_ah_attr ah = { .port_num = 1 };
	struct ibv_xrcd_init_attr xrcd = { .comp_mask = 0 };
	union ibv_gid gid = { { 0 } };
	errno = 0;
	CHECK(!ibv_create_ah(pd, &ah) && errno == EOPNOTSUPP);
	CHECK(!ibv_open_xrcd(context, &xrcd) && errno == EOPNOTSUPP);
	CHECK(!ibv_reg_dmabuf_mr(pd, 0, 4096, 0, 0, 0) && errno == EOPNOTSUPP);
	CHECK(!ibv_import_device(0) && errno == EOPNOTSUPP);
	struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	struct ibv_qp *qp = make_qp(cq, NULL);
	CHECK(ibv_attach_mcast(qp, &gid, 0) == EOPNOTSUPP);
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);
}

int main(void)
{
	device();
	attributes();
	pd = ibv_alloc_pd(context);
	CHECK(pd && pd->context == context);
	memory();
	queue_pair();
	completion_events();
	interrupted();
	shared_receives();
	refused();
	CHECK(ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_close_device(context) == 0);
	return 0;
}
