/* A shared receive queue says once for each arming that fewer receives are left than its limit,
 * at once if it is so already; and its room can be changed. */
#include "pair.h"

static struct ibv_srq *srq;

static void post_shared(int count)
{
	for (int i = 0; i < count; i++) {
		struct ibv_sge sge = place(0, 8);
		struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;
		CHECK(ibv_post_srq_recv(srq, &wr, &bad) == 0);
	}
}

static void use_one(void)
{
	post(a, IBV_WR_SEND, 1, IBV_SEND_SIGNALED, 0, 8, 0);
	CHECK(next(b.cq).status == IBV_WC_SUCCESS);
	ends(a, 1, IBV_WC_SUCCESS);
}

static void arm(uint32_t limit)
{
	struct ibv_srq_attr attr = { .srq_limit = limit };
	CHECK(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT) == 0);
}

static void reached(void)
{
	struct ibv_async_event event = await(IBV_EVENT_SRQ_LIMIT_REACHED);
	CHECK(event.element.srq == srq);
	ibv_ack_async_event(&event);
	struct ibv_srq_attr attr;
	CHECK(ibv_query_srq(srq, &attr) == 0 && attr.srq_limit == 0);
}

int main(int argc, char **argv)
{
	/* The limit has no meaning here (ibv_create_srq(3)). */
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 1, .srq_limit = 4 } };
	struct ibv_srq_attr made;
	begin(argc, argv);
	a.cq = make_cq(16), b.cq = make_cq(16);
	a.qp = make_qp(a.cq);
	srq = wanted.srq = ibv_create_srq(pd, &init);
	CHECK(srq && ibv_query_srq(srq, &made) == 0 && made.srq_limit == 0);
	b.qp = make_qp(b.cq);
	join(a.qp, b.qp);

	post_shared(4);
	arm(3);
	use_one();
	CHECK(no_event());
	use_one();
	reached();
	use_one();
	CHECK(no_event());
	arm(2);
	reached();

	struct ibv_srq_attr attr = { .max_wr = 8 };
	struct ibv_device_attr device;
	CHECK(ibv_query_device(context, &device) == 0);
	CHECK(device.device_cap_flags & IBV_DEVICE_SRQ_RESIZE);
	CHECK(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR) == 0);
	post_shared(7);
	CHECK(ibv_query_srq(srq, &attr) == 0 && attr.max_wr >= 8);
	struct ibv_recv_wr wr = { .wr_id = 9 }, *bad;
	CHECK(attr.max_wr > 8 || (ibv_post_srq_recv(srq, &wr, &bad) == ENOMEM && bad == &wr));
	attr.max_wr = 2;
	CHECK(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR) == EINVAL);
	attr.max_wr = device.max_srq_wr + 1;
	CHECK(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR) == EINVAL);
	part();
	CHECK(ibv_destroy_srq(srq) == 0);
	return finish();
}
