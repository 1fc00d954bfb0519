/* Device memory, null regions, memory on demand, windows and imports, over a queue pair of the
 * adapter that is its own peer. */
#include "device.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
	     IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq_ex *cq;
static union ibv_gid gid;
static uint64_t memory[16];
static struct ibv_mr *mr;

static void modify(struct ibv_qp *qp, struct ibv_qp_attr attr, int mask)
{
	CHECK(ibv_modify_qp(qp, &attr, mask | IBV_QP_STATE) == 0);
}

static struct ibv_qp *make(void)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = ibv_cq_ex_to_cq(cq), .recv_cq = ibv_cq_ex_to_cq(cq),
		.qp_type = IBV_QPT_RC, .pd = pd,
		.cap = { .max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_BIND_MW,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(context, &init);
	CHECK(qp);
	modify(qp, (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT, .port_num = 1,
					 .qp_access_flags = ALL & ~IBV_ACCESS_MW_BIND },
	       IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	modify(qp, (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024,
					 .dest_qp_num = qp->qp_num, .max_dest_rd_atomic = 4,
					 .ah_attr = { .is_global = 1, .port_num = 1,
						      .grh = { .dgid = gid } } },
	       IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	modify(qp, (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7,
					 .rnr_retry = 7, .max_rd_atomic = 4 },
	       IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		       IBV_QP_MAX_QP_RD_ATOMIC);
	return qp;
}

static enum ibv_wc_status finish(enum ibv_wc_opcode opcode)
{
	struct ibv_poll_cq_attr attr = { 0 };
	while (ibv_start_poll(cq, &attr) == ENOENT)
		;
	enum ibv_wc_status status = cq->status;
	CHECK(status || ibv_wc_read_opcode(cq) == opcode);
	CHECK(ibv_wc_read_completion_ts(cq) > 0);
	CHECK(ibv_wc_read_completion_wallclock_ns(cq) / 1000000000 + 60 > (uint64_t)time(NULL));
	ibv_end_poll(cq);
	return status;
}

/* Copies eight octets by an RDMA Write; how it ends. */
static enum ibv_wc_status copy(struct ibv_qp *qp, uint64_t from, uint32_t lkey, uint64_t to,
			       uint32_t rkey)
{
	struct ibv_sge sge = { from, 8, lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED, .wr.rdma = { to, rkey },
	}, *bad;
	CHECK(ibv_post_send(qp, &wr, &bad) == 0);
	return finish(IBV_WC_RDMA_WRITE);
}

/* What a context has goes together with what was imported from it, and with nothing of a context
 * that was opened by itself. */
static void families(struct ibv_pd *imported)
{
	struct ibv_context *apart = ibv_open_device(context->device);
	struct ibv_pd *other_pd = ibv_alloc_pd(apart);
	struct ibv_cq *own = ibv_cq_ex_to_cq(cq), *other = ibv_create_cq(apart, 4, NULL, NULL, 0);
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_qp_init_attr init = {
		.send_cq = own, .recv_cq = own, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	CHECK(other_pd && other);
	struct ibv_qp *qp = ibv_create_qp(imported, &init);
	CHECK(qp && ibv_destroy_qp(qp) == 0);
	CHECK(!ibv_create_qp(other_pd, &init) && errno == EINVAL);
	init.recv_cq = other;
	CHECK(!ibv_create_qp(pd, &init) && errno == EINVAL);
	init.recv_cq = own;
	init.srq = ibv_create_srq(other_pd, &srq);
	CHECK(init.srq && !ibv_create_qp(pd, &init) && errno == EINVAL);
	CHECK(ibv_destroy_srq(init.srq) == 0 && ibv_destroy_cq(other) == 0);
	CHECK(ibv_dealloc_pd(other_pd) == 0 && ibv_close_device(apart) == 0);
}

static void device_memory(struct ibv_qp *qp)
{
	struct ibv_device_attr_ex limits;
	CHECK(ibv_query_device_ex(context, NULL, &limits) == 0 && limits.max_dm_size >= 64);
	struct ibv_alloc_dm_attr attr = { .length = limits.max_dm_size + 1 };
	CHECK(!ibv_alloc_dm(context, &attr) && errno == EINVAL);
	attr.length = 64;
	struct ibv_dm *dm = ibv_alloc_dm(context, &attr);
	int access = ALL | IBV_ACCESS_ZERO_BASED;
	CHECK(dm && !ibv_reg_dm_mr(pd, dm, 0, 65, access) && errno == EINVAL);
	struct ibv_mr *region = ibv_reg_dm_mr(pd, dm, 32, 32, access);
	CHECK(region && ibv_free_dm(dm) == EBUSY);
	memory[0] = 0x1122334455667788, memory[1] = 0;
	CHECK(copy(qp, (uintptr_t)memory, mr->lkey, 8, region->rkey) == IBV_WC_SUCCESS);
	CHECK(ibv_memcpy_from_dm(memory + 1, dm, 40, 8) == 0 && memory[1] == memory[0]);
	CHECK(ibv_memcpy_to_dm(dm, 3, memory, 4) == EINVAL);
	CHECK(ibv_memcpy_to_dm(dm, 60, memory, 8) == EINVAL);

	struct ibv_context *second = ibv_import_device(dup(context->cmd_fd));
	CHECK(second && second != context && second->device == context->device);
	struct ibv_dm *same = ibv_import_dm(second, dm->handle);
	CHECK(same && ibv_memcpy_from_dm(memory + 2, same, 40, 8) == 0 && memory[2] == memory[0]);
	ibv_unimport_dm(same);
	struct ibv_pd *domain = ibv_import_pd(second, pd->handle);
	families(domain);
	struct ibv_mr *known = ibv_import_mr(domain, mr->handle);
	CHECK(domain && known && known->rkey == mr->rkey && known->addr == NULL);
	CHECK(!ibv_import_pd(second, mr->handle) && errno == ENOENT);
	ibv_unimport_mr(known);
	ibv_unimport_pd(domain);
	CHECK(ibv_close_device(second) == 0);
	CHECK(ibv_dereg_mr(region) == 0 && ibv_free_dm(dm) == 0);
}

static void nothing(struct ibv_qp *qp)
{
	struct ibv_mr *null = ibv_alloc_null_mr(pd);
	CHECK(null);
	memory[3] = 5;
	CHECK(copy(qp, 12345, null->lkey, (uintptr_t)(memory + 3), mr->rkey) == IBV_WC_SUCCESS);
	CHECK(memory[3] == 0 && ibv_dereg_mr(null) == 0);
}

/* A page that comes and goes fails a request, not the program. */
static void on_demand(void)
{
	struct ibv_mr *all = ibv_reg_mr(pd, NULL, SIZE_MAX, ALL | IBV_ACCESS_ON_DEMAND);
	uint64_t *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(all && page != MAP_FAILED);
	struct ibv_sge sge = { (uintptr_t)page, 4096, all->lkey };
	CHECK(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0, &sge, 1) == 0);
	struct ibv_qp *qp = make(), *other = make();
	memory[4] = 7;
	uint64_t from = (uintptr_t)(memory + 4);
	CHECK(copy(qp, from, all->lkey, (uintptr_t)page, all->rkey) == IBV_WC_SUCCESS);
	/* It stays taken, as another thread could be given what is free. */
	CHECK(*page == 7 && mprotect(page, 4096, PROT_NONE) == 0);
	CHECK(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1) == EFAULT);
	CHECK(copy(qp, from, all->lkey, (uintptr_t)page, all->rkey) == IBV_WC_REM_ACCESS_ERR);
	CHECK(copy(other, (uintptr_t)page, all->lkey, from, mr->rkey) == IBV_WC_LOC_PROT_ERR);
	CHECK(munmap(page, 4096) == 0 && ibv_dereg_mr(all) == 0);
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_qp(other) == 0);
}

static void windows(void)
{
	struct ibv_qp *qp = make();
	struct ibv_mw *first = ibv_alloc_mw(pd, IBV_MW_TYPE_1), *second = ibv_alloc_mw(pd, 2);
	CHECK(first && second && !ibv_alloc_mw(pd, 3));
	struct ibv_mw_bind_info info = {
		.mr = mr, .addr = (uintptr_t)(memory + 8), .length = 8,
		.mw_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	struct ibv_mw_bind bind = { .send_flags = IBV_SEND_SIGNALED, .bind_info = info };
	uint32_t before = first->rkey;
	CHECK(ibv_bind_mw(qp, first, &bind) == 0 && first->rkey == ibv_inc_rkey(before));
	CHECK(finish(IBV_WC_BIND_MW) == IBV_WC_SUCCESS);
	CHECK(ibv_bind_mw(qp, second, &bind) == EINVAL && ibv_dereg_mr(mr) == EBUSY);

	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	uint32_t key = ibv_inc_rkey(second->rkey);
	uint64_t value = 0x99;
	ibv_wr_start(ex);
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_bind_mw(ex, second, key, &info);
	ibv_wr_atomic_write(ex, key, info.addr, &value);
	CHECK(ibv_wr_complete(ex) == 0);
	CHECK(finish(IBV_WC_BIND_MW) == IBV_WC_SUCCESS);
	CHECK(finish(IBV_WC_ATOMIC_WRITE) == IBV_WC_SUCCESS && memory[8] == 0x99);
	CHECK(copy(qp, (uintptr_t)memory, mr->lkey, info.addr, first->rkey) == IBV_WC_SUCCESS);
	CHECK(ibv_dealloc_mw(first) == 0);
	CHECK(copy(qp, (uintptr_t)memory, mr->lkey, info.addr + 8, key) == IBV_WC_REM_ACCESS_ERR);
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_dealloc_mw(second) == 0);
}

int main(void)
{
	context = ibv_open_device(device_named("weft0"));
	CHECK(context && ibv_query_gid(context, 1, 0, &gid) == 0);
	pd = ibv_alloc_pd(context);
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
				       IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
	};
	cq = ibv_create_cq_ex(context, &attr);
	mr = ibv_reg_mr(pd, memory, sizeof(memory), ALL);
	CHECK(pd && cq && mr);
	struct ibv_qp *qp = make();
	device_memory(qp);
	nothing(qp);
	CHECK(ibv_destroy_qp(qp) == 0);
	on_demand();
	windows();
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	CHECK(ibv_query_rt_values_ex(context, &values) == 0 && values.raw_clock.tv_nsec > 0);
	CHECK(ibv_dereg_mr(mr) == 0 && ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
	return 0;
}
