/* The header calls most verbs through a table before the context, as far as that says that it goes.
 * A verb that no device here has answers EOPNOTSUPP, and one that only newer headers know is beyond
 * the end of the table. */
#include "pair.h"

#define IS_ABSENT(call) (errno = 0, !(call) && errno == EOPNOTSUPP)

int main(int argc, char **argv)
{
	begin(argc, argv);
	pair();
	struct verbs_context *table = verbs_get_ctx(context);
	/* Of the oldest header whose verbs are all here: later ones grow towards lower addresses. */
	CHECK(table && table->sz == 648);

	struct ibv_wq_init_attr wq_init = { .wq_type = IBV_WQT_RQ, .max_wr = 1, .max_sge = 1, .pd = pd };
	CHECK(IS_ABSENT(ibv_create_wq(context, &wq_init)));
	struct ibv_wq wq = { .context = context };
	struct ibv_wq_attr wq_attr = { 0 };
	CHECK(ibv_modify_wq(&wq, &wq_attr) == EOPNOTSUPP && ibv_destroy_wq(&wq) == EOPNOTSUPP);
	struct ibv_rwq_ind_table_init_attr rwq_init = { 0 };
	CHECK(IS_ABSENT(ibv_create_rwq_ind_table(context, &rwq_init)));
	struct ibv_rwq_ind_table rwq = { .context = context };
	CHECK(ibv_destroy_rwq_ind_table(&rwq) == EOPNOTSUPP);

	struct ibv_flow_attr flow_attr = { 0 };
	struct ibv_flow flow = { .context = context };
	CHECK(IS_ABSENT(ibv_create_flow(a.qp, &flow_attr)));
	CHECK(ibv_destroy_flow(&flow) == EOPNOTSUPP);
	struct ibv_flow_action_esp_attr esp = { 0 };
	struct ibv_flow_action action = { .context = context };
	CHECK(IS_ABSENT(ibv_create_flow_action_esp(context, &esp)));
	CHECK(ibv_modify_flow_action_esp(&action, &esp) == EOPNOTSUPP);
	CHECK(ibv_destroy_flow_action(&action) == EOPNOTSUPP);

	struct ibv_counters_init_attr counters_init = { 0 };
	struct ibv_counters counters = { .context = context };
	struct ibv_counter_attach_attr attach = { 0 };
	uint64_t values[2];
	CHECK(IS_ABSENT(ibv_create_counters(context, &counters_init)));
	CHECK(ibv_attach_counters_point_flow(&counters, &attach, &flow) == EOPNOTSUPP);
	CHECK(ibv_read_counters(&counters, values, 2, 0) == EOPNOTSUPP);
	CHECK(ibv_destroy_counters(&counters) == EOPNOTSUPP);

	struct ibv_modify_cq_attr moderation = { .attr_mask = IBV_CQ_ATTR_MODERATE };
	CHECK(ibv_modify_cq(a.cq, &moderation) == EOPNOTSUPP);
	struct ibv_qp_rate_limit_attr rate = { .rate_limit = 1 };
	CHECK(ibv_modify_qp_rate_limit(a.qp, &rate) == EOPNOTSUPP);
	struct ibv_qp_open_attr open = { .comp_mask = IBV_QP_OPEN_ATTR_NUM, .qp_num = a.qp->qp_num };
	CHECK(IS_ABSENT(ibv_open_qp(context, &open)));
	struct ibv_srq_init_attr srq_init = { .attr = { .max_wr = 1, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &srq_init);
	struct ibv_ops_wr op = { .opcode = IBV_WR_TAG_SYNC }, *bad;
	CHECK(srq && ibv_post_srq_ops(srq, &op, &bad) == EOPNOTSUPP && bad == &op);
	CHECK(ibv_destroy_srq(srq) == 0);
	part();
	return finish();
}
