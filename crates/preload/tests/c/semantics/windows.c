/* A window of type 2 is bound by a request, and closed by one or by the peer's message, which says
 * so; it needs a region that may have windows. Each binding changes the low octet of the key. */
#include "pair.h"

static struct ibv_mw *window;

static uint32_t bind_next(struct ibv_mr *region, enum ibv_wc_status status)
{
	struct ibv_send_wr wr = {
		.wr_id = 1, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED,
		.bind_mw = { window, ibv_inc_rkey(window->rkey),
			     { region, (uintptr_t)memory + 4096, 64, IBV_ACCESS_REMOTE_WRITE } },
	}, *bad;
	CHECK(ibv_post_send(b.qp, &wr, &bad) == 0);
	struct ibv_wc wc = ends(b, 1, status);
	CHECK(status || wc.opcode == IBV_WC_BIND_MW);
	CHECK((wr.bind_mw.rkey ^ window->rkey) >> 8 == 0);
	return wr.bind_mw.rkey;
}

static void write_by(uint32_t key, uint64_t to, enum ibv_wc_status status)
{
	struct ibv_sge sge = place(0, 8);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, 2, IBV_SEND_SIGNALED, &sge, to), *bad;
	wr.wr.rdma.rkey = key;
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	ends(a, 2, status);
}

static void by_the_peer(void)
{
	uint32_t key = bind_next(mr, IBV_WC_SUCCESS);
	write_by(key, 4096, IBV_WC_SUCCESS);
	struct ibv_sge sge = place(0, 8);
	struct ibv_send_wr wr = request(IBV_WR_SEND_WITH_INV, 3, IBV_SEND_SIGNALED, &sge, 0), *bad;
	wr.invalidate_rkey = key;
	receive(b, 4, 64, 8);
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	ends(a, 3, IBV_WC_SUCCESS);
	struct ibv_wc wc = ends(b, 4, IBV_WC_SUCCESS);
	CHECK(wc.wc_flags == IBV_WC_WITH_INV && wc.invalidated_rkey == key);
	write_by(key, 4096, IBV_WC_REM_ACCESS_ERR);
}

static void by_a_request(void)
{
	window->rkey = bind_next(mr, IBV_WC_SUCCESS);
	struct ibv_send_wr wr = {
		.wr_id = 5, .opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED,
		.invalidate_rkey = window->rkey,
	}, *bad;
	CHECK(ibv_post_send(b.qp, &wr, &bad) == 0);
	CHECK(ends(b, 5, IBV_WC_SUCCESS).opcode == IBV_WC_LOCAL_INV);
	write_by(window->rkey, 4096, IBV_WC_REM_ACCESS_ERR);
}

static void beyond_its_bounds(void)
{
	uint32_t key = bind_next(mr, IBV_WC_SUCCESS);
	write_by(key, 4096 + 56, IBV_WC_SUCCESS);
	write_by(key, 4096 + 57, IBV_WC_REM_ACCESS_ERR);
}

/* Without the right to have windows, or without that to be written. */
static void of_a_region(unsigned access)
{
	struct ibv_mr *region = ibv_reg_mr(pd, memory, 8192, access);
	CHECK(region);
	bind_next(region, IBV_WC_MW_BIND_ERR);
	CHECK(ibv_dereg_mr(region) == 0);
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	for (int i = 0; i < 5; i++) {
		window = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
		CHECK(window);
		pair();
		if (i == 0)
			by_the_peer();
		else if (i == 1)
			by_a_request();
		else if (i == 2)
			beyond_its_bounds();
		else
			of_a_region(i == 3 ? IBV_ACCESS_LOCAL_WRITE : IBV_ACCESS_MW_BIND);
		part();
		CHECK(ibv_dealloc_mw(window) == 0);
	}
	return finish();
}
