/* Regions come and go by the thousand while the peer writes into others, and whoever has unmapped
 * the memory of one is not harmed by a write that comes late. */
#include "pair.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { CYCLES = 3000, LATE = 30, LENGTH = 64 << 10 };

static atomic_int over;

/* Writes into memory that stays, and has no other trouble than its own slots. */
static void *write_on(void *unused)
{
	struct ibv_cq *cq = make_cq(64);
	struct side c = { make_qp(cq), cq }, d = { make_qp(cq), cq };
	join(c.qp, d.qp);
	while (!over) {
		post(c, IBV_WR_RDMA_WRITE, 1, IBV_SEND_SIGNALED, 0, 4096, 1 << 20);
		ends(c, 1, IBV_WC_SUCCESS);
	}
	CHECK(ibv_destroy_qp(c.qp) == 0 && ibv_destroy_qp(d.qp) == 0 && ibv_destroy_cq(cq) == 0);
	return unused;
}

static char *map(void)
{
	char *at = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(at != MAP_FAILED);
	return at;
}

static void write_to(struct ibv_mr *region)
{
	struct ibv_sge sge = place(2 << 20, LENGTH);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, 2, IBV_SEND_SIGNALED, &sge, 0), *bad;
	wr.wr.rdma.remote_addr = (uintptr_t)region->addr, wr.wr.rdma.rkey = region->rkey;
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
}

/* A message waits for its receive when the region of what it sends goes: what the application has
 * there afterwards is not delivered as if it had been sent. */
static void send_late(void)
{
	char *at = map();
	struct ibv_mr *region = ibv_reg_mr(pd, at, LENGTH, EVERY);
	struct ibv_sge sge = { (uintptr_t)at, LENGTH, region->lkey };
	struct ibv_send_wr wr = request(IBV_WR_SEND, 3, IBV_SEND_SIGNALED, &sge, 0), *bad;
	struct ibv_wc wc;
	memset(at, 'd', LENGTH);
	/* The peer may have to find out how it gets at the memory. */
	for (int i = 0; i < 3; i++) {
		receive(b, 4, 2 << 20, LENGTH);
		CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
		ends(b, 4, IBV_WC_SUCCESS), ends(a, 3, IBV_WC_SUCCESS);
	}
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	CHECK(ibv_poll_cq(b.cq, 1, &wc) == 0);
	CHECK(ibv_dereg_mr(region) == 0);
	memset(at, 'x', LENGTH);
	receive(b, 4, 2 << 20, LENGTH);
	if (next(a.cq).status == IBV_WC_SUCCESS) {
		ends(b, 4, IBV_WC_SUCCESS);
		for (int i = 0; i < LENGTH; i++)
			CHECK(memory[(2 << 20) + i] == 'd');
	} else if (!adapter) {
		/* The peer of an adapter hears nothing of it. */
		CHECK(next(b.cq).status != IBV_WC_SUCCESS);
	}
	CHECK(munmap(at, LENGTH) == 0);
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	pthread_t writer;
	CHECK(pthread_create(&writer, NULL, write_on, NULL) == 0);
	memset(memory + (2 << 20), 'd', LENGTH);
	pair();
	for (int i = 0; i < CYCLES; i++) {
		char *at = map();
		struct ibv_mr *region = ibv_reg_mr(pd, at, LENGTH, EVERY);
		CHECK(region);
		if (i % 10 == 0) {
			write_to(region);
			ends(a, 2, IBV_WC_SUCCESS);
			CHECK(at[0] == 'd' && at[LENGTH - 1] == 'd');
		}
		CHECK(ibv_dereg_mr(region) == 0 && munmap(at, LENGTH) == 0);
	}
	part();

	/* Gone in the middle of it: the write comes too late, or it was in time. */
	for (int i = 0; i < LATE; i++) {
		pair();
		char *at = map();
		struct ibv_mr *region = ibv_reg_mr(pd, at, LENGTH, EVERY);
		for (int n = 0; n < 8; n++)
			write_to(region);
		CHECK(ibv_dereg_mr(region) == 0 && munmap(at, LENGTH) == 0);
		int failed = 0;
		for (int n = 0; n < 8; n++) {
			enum ibv_wc_status status = next(a.cq).status;
			if (status != IBV_WC_SUCCESS)
				CHECK(status == (failed++ ? IBV_WC_WR_FLUSH_ERR : IBV_WC_REM_ACCESS_ERR));
			else
				CHECK(!failed);
		}
		part();
	}
	for (int i = 0; i < LATE; i++) {
		pair();
		send_late();
		part();
	}
	over = 1;
	CHECK(pthread_join(writer, NULL) == 0);
	return finish();
}
