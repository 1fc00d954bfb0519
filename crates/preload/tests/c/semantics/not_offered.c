/* What the newest version of verbs has and no device here: each call says so as its manual page
 * has it. The rate of the port is the one that its width and speed stand for. */
#include "../newest.h"

#include "pair.h"

int main(int argc, char **argv)
{
	VERB(int, query_port_speed, "1.16", struct ibv_context *, uint32_t, uint64_t *);
	VERB(int, dm_export_dmabuf_fd, "1.16", struct ibv_dm *);
	VERB(void *, alloc_dmah, "1.15", struct ibv_context *, void *);
	VERB(int, dealloc_dmah, "1.15", void *);
	VERB(void *, create_comp_cntr, "1.17", struct ibv_context *, void *);
	begin(argc, argv);

	enum { WIDTH_4X = 2, SPEED_25_GBPS = 32 };
	struct ibv_port_attr port;
	uint64_t speed = 0;
	CHECK(ibv_query_port(context, 1, &port) == 0);
	CHECK(port.active_width == WIDTH_4X && port.active_speed == SPEED_25_GBPS);
	CHECK(query_port_speed(context, 1, &speed) == 0 && speed == 4 * 250);
	CHECK(query_port_speed(context, 2, &speed) == EINVAL && speed == 1000);
	CHECK(query_port_speed(context, 1, NULL) == EINVAL);

	struct { uint32_t comp_mask, cpu; uint8_t hint, memory; } hints = { 1, 0, 0, 0 };
	CHECK(!alloc_dmah(context, &hints) && errno == EOPNOTSUPP);
	CHECK(dealloc_dmah(&context) == EOPNOTSUPP);
	struct ibv_alloc_dm_attr dm_attr = { .length = 4096 };
	struct ibv_dm *dm = ibv_alloc_dm(context, &dm_attr);
	errno = 0;
	CHECK(dm && dm_export_dmabuf_fd(dm) == -1 && errno == EOPNOTSUPP);
	CHECK(ibv_free_dm(dm) == 0);

	/* Nobody flushes: a region for it would be a promise, a queue pair's right to it is none. */
	enum { FLUSH_GLOBAL = 1 << 8, FLUSH_PERSISTENT = 1 << 9 };
	errno = 0;
	CHECK(!ibv_reg_mr(pd, memory, 4096, EVERY | FLUSH_GLOBAL) && errno == EOPNOTSUPP);
	CHECK(!ibv_reg_mr(pd, memory, 4096, EVERY | 1 << 10) && errno == EINVAL);
	struct ibv_cq *cq = make_cq(1);
	struct ibv_qp *qp = make_qp(cq);
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | FLUSH_GLOBAL | FLUSH_PERSISTENT,
	};
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					IBV_QP_ACCESS_FLAGS));
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);

	uint64_t counter[8] = { 0 };
	errno = 0;
	CHECK(!create_comp_cntr(context, counter) && errno == EOPNOTSUPP);
	return finish();
}
