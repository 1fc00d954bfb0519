/* What is made is at least as large as was asked for, and says how large; what is beyond the
 * advertised limits cannot be made. */
#include "pair.h"

static struct ibv_device_attr device;

static struct ibv_qp *try(struct ibv_qp_init_attr *init, struct ibv_qp_cap cap)
{
	init->cap = cap;
	errno = 0;
	return ibv_create_qp(pd, init);
}

static void queue_pairs(void)
{
	struct ibv_cq *cq = make_cq(1);
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC };
	const uint32_t wr = device.max_qp_wr, sge = device.max_sge;
	struct ibv_qp_cap small = { 3, 5, 2, 1, 20 }, large = { wr, wr, sge, sge, 0 };
	const struct ibv_qp_cap all[] = { small, large };
	for (int i = 0; i < 2; i++) {
		struct ibv_qp *qp = try(&init, all[i]);
		CHECK(qp && init.cap.max_send_wr >= all[i].max_send_wr);
		CHECK(init.cap.max_recv_wr >= all[i].max_recv_wr);
		CHECK(init.cap.max_send_sge >= all[i].max_send_sge);
		CHECK(init.cap.max_recv_sge >= all[i].max_recv_sge);
		CHECK(init.cap.max_inline_data >= all[i].max_inline_data);
		CHECK(ibv_destroy_qp(qp) == 0);
	}
	for (int field = 0; field < 5; field++) {
		struct ibv_qp_cap cap = { 1, 1, 1, 1, 1 };
		uint32_t *fields = &cap.max_send_wr;
		fields[field] = 1 + (field < 2 ? wr : field < 4 ? sge : 1 << 20);
		CHECK(!try(&init, cap) && errno == EINVAL);
	}
	/* A program finds the limit of inline data by asking for twice as much each time. */
	struct ibv_qp_cap cap = { 1, 1, 1, 1, 1 };
	struct ibv_qp *qp;
	while ((qp = try(&init, cap))) {
		CHECK(ibv_destroy_qp(qp) == 0);
		cap.max_inline_data *= 2;
	}
	CHECK(cap.max_inline_data >= 512);
	CHECK(ibv_destroy_cq(cq) == 0);
}

static void completion_queues(void)
{
	struct ibv_cq *cq = make_cq(device.max_cqe);
	CHECK(cq->cqe >= device.max_cqe && ibv_resize_cq(cq, 7) == 0 && cq->cqe >= 7);
	CHECK(ibv_resize_cq(cq, device.max_cqe + 1) == EINVAL && ibv_resize_cq(cq, 0) == EINVAL);
	CHECK(ibv_destroy_cq(cq) == 0);
	CHECK(!ibv_create_cq(context, device.max_cqe + 1, NULL, NULL, 0) && errno == EINVAL);
	CHECK(!ibv_create_cq(context, 1, NULL, NULL, context->num_comp_vectors) && errno == EINVAL);
	CHECK(!ibv_create_cq(context, 1, NULL, NULL, -1) && errno == EINVAL);
}

static void shared_receive_queues(void)
{
	struct ibv_srq_init_attr init = { .attr = { device.max_srq_wr, device.max_srq_sge, 0 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &init);
	CHECK(srq && (int)init.attr.max_wr >= device.max_srq_wr && ibv_destroy_srq(srq) == 0);
	init.attr = (struct ibv_srq_attr){ device.max_srq_wr + 1, 1, 0 };
	CHECK(!ibv_create_srq(pd, &init) && errno == EINVAL);
	init.attr = (struct ibv_srq_attr){ 1, device.max_srq_sge + 1, 0 };
	CHECK(!ibv_create_srq(pd, &init) && errno == EINVAL);
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	CHECK(ibv_query_device(context, &device) == 0);
	queue_pairs();
	completion_queues();
	shared_receive_queues();
	return finish();
}
