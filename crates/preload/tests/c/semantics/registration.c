/* What can be registered and what cannot; what a region's address, length and keys mean; and what
 * becomes of them when it is changed. */
#include "pair.h"

#include <sys/mman.h>

#define FAILS_TO_CHANGE(region, flags, at, length, access, error)                           \
	do {                                                                                \
		errno = 0;                                                                  \
		CHECK(ibv_rereg_mr(region, flags, NULL, at, length, access) < 0);           \
		CHECK(errno == (error));                                                    \
	} while (0)

static struct ibv_mr *try(void *at, size_t length, unsigned access)
{
	errno = 0;
	return ibv_reg_mr_iova2(pd, at, length, (uintptr_t)at, access);
}

static void done(struct ibv_mr *region)
{
	CHECK(region && ibv_dereg_mr(region) == 0);
}

static void rights(void)
{
	const int remote[] = { IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC };
	for (int i = 0; i < 2; i++) {
		CHECK(!try(memory, 64, remote[i]) && errno == EINVAL);
		done(try(memory, 64, remote[i] | IBV_ACCESS_LOCAL_WRITE));
	}
	CHECK(!try(memory, 64, 1 << 19) && errno == EINVAL);
	done(try(memory, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING));
	/* Any of the bits that are optional. */
	done(try(memory, 64, 1 << 28));
}

/* Whether memory with a hole in it is refused, unless another thread has mapped something there. */
static int is_refused(char *at, size_t length, char *hole)
{
	struct ibv_mr *region = try(at, length, 0);
	if (!region)
		return errno == EFAULT;
	done(region);
	return msync(hole, 1, MS_ASYNC) == 0;
}

static void mappings(void)
{
	char *page = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(page != MAP_FAILED);
	done(try(page, 4096, 0));
	done(try(page, 4096, IBV_ACCESS_REMOTE_READ));
	CHECK(!try(page, 4096, IBV_ACCESS_LOCAL_WRITE) && errno == EFAULT);
	CHECK(munmap(page + 4096, 4096) == 0);
	CHECK(is_refused(page, 4097, page + 4096));
	CHECK(munmap(page, 4096) == 0 && is_refused(page, 1, page));
	done(try(memory, 0, EVERY));
	done(try(NULL, 0, IBV_ACCESS_LOCAL_WRITE));
}

static enum ibv_wc_status write_to(uint64_t to, uint32_t rkey, uint32_t length)
{
	struct ibv_sge sge = place(0, length);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, 1, IBV_SEND_SIGNALED, &sge, 0), *bad;
	wr.wr.rdma.remote_addr = to, wr.wr.rdma.rkey = rkey;
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	return next(a.cq).status;
}

/* The address that a peer names need not be the memory's. */
static void another_address(void)
{
	struct ibv_mr *region = ibv_reg_mr_iova(pd, memory + 4096, 64, 0x1000, EVERY);
	CHECK(region && region->addr == memory + 4096 && region->length == 64);
	memory[0] = 'i', memory[4096 + 8] = 0;
	CHECK(write_to(0x1008, region->rkey, 1) == IBV_WC_SUCCESS && memory[4096 + 8] == 'i');
	done(region);
	region = ibv_reg_mr(pd, memory + 4096, 64, EVERY | IBV_ACCESS_ZERO_BASED);
	CHECK(region && write_to(9, region->rkey, 1) == IBV_WC_SUCCESS && memory[4096 + 9] == 'i');
	done(region);
}

/* Nothing is written or read with a length of zero, so no key is looked at. */
static void nothing_at_all(void)
{
	CHECK(write_to(12345, 0xdead, 0) == IBV_WC_SUCCESS);
	struct ibv_sge sge = { 0, 0, 0xdead };
	struct ibv_recv_wr recv = { .wr_id = 2, .sg_list = &sge, .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr wr = request(IBV_WR_SEND, 3, IBV_SEND_SIGNALED, &sge, 0), *bad;
	CHECK(!ibv_post_recv(b.qp, &recv, &bad_recv) && !ibv_post_send(a.qp, &wr, &bad));
	ends(a, 3, IBV_WC_SUCCESS);
	CHECK(ends(b, 2, IBV_WC_SUCCESS).byte_len == 0);
}

/* The keys stay, and mean what the region is now. */
static void changed(void)
{
	struct ibv_pd *other = ibv_alloc_pd(context);
	struct ibv_mr *region = ibv_reg_mr(pd, memory + 4096, 64, EVERY);
	CHECK(other && region);
	uint32_t key = region->rkey;
	CHECK(!ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory + 8192, 32, 0));
	CHECK(region->rkey == key && region->addr == memory + 8192 && region->length == 32);
	memory[0] = 'c', memory[4096] = memory[8192] = 0;
	CHECK(write_to((uintptr_t)memory + 8192, key, 1) == IBV_WC_SUCCESS && memory[8192] == 'c');
	CHECK(ibv_rereg_mr(region, 1 << 9, NULL, NULL, 0, 0) ==
	      IBV_REREG_MR_ERR_INPUT);
	CHECK(!ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ));
	CHECK(write_to((uintptr_t)memory + 8192, key, 1) == IBV_WC_REM_ACCESS_ERR);
	part();
	pair();
	CHECK(!ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_ACCESS | IBV_REREG_MR_CHANGE_PD, other,
			    NULL, 0, EVERY));
	CHECK(region->pd == other && ibv_dealloc_pd(other) == EBUSY);
	CHECK(write_to((uintptr_t)memory + 8192, key, 1) == IBV_WC_REM_ACCESS_ERR);
	done(region);
	CHECK(ibv_dealloc_pd(other) == 0);
}

/* What is counted from its first byte is so wherever it is moved, until it is made another. */
static void moved_from_zero(void)
{
	struct ibv_mr *region = ibv_reg_mr(pd, memory + 4096, 64, EVERY | IBV_ACCESS_ZERO_BASED);
	CHECK(region);
	memory[0] = 'z', memory[8192 + 9] = memory[8192 + 10] = 0;
	CHECK(!ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory + 8192, 64, 0));
	CHECK(write_to(9, region->rkey, 1) == IBV_WC_SUCCESS && memory[8192 + 9] == 'z');
	CHECK(!ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, EVERY));
	CHECK(write_to((uintptr_t)memory + 8192 + 10, region->rkey, 1) == IBV_WC_SUCCESS);
	CHECK(memory[8192 + 10] == 'z');
	done(region);
}

/* A change asks for what the whole registration would. */
static void refused_changes(void)
{
	char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(page != MAP_FAILED);
	struct ibv_mr *region = try(memory, 4096, IBV_ACCESS_LOCAL_WRITE);
	FAILS_TO_CHANGE(region, IBV_REREG_MR_CHANGE_TRANSLATION, page, 4096, 0, EFAULT);
	CHECK(region->addr == memory);
	done(region);
	region = try(page, 4096, IBV_ACCESS_REMOTE_READ);
	FAILS_TO_CHANGE(region, IBV_REREG_MR_CHANGE_ACCESS, NULL, 0, IBV_ACCESS_LOCAL_WRITE, EFAULT);
	done(region);
	CHECK(munmap(page, 4096) == 0);
	/* Looked at with each access instead. */
	region = try(memory, 4096, IBV_ACCESS_ON_DEMAND);
	CHECK(!ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, page, 4096, 0));
	done(region);
	region = ibv_alloc_null_mr(pd);
	FAILS_TO_CHANGE(region, IBV_REREG_MR_CHANGE_TRANSLATION, memory, 64, 0, EOPNOTSUPP);
	done(region);
	struct ibv_alloc_dm_attr wanted_dm = { .length = 4096 };
	struct ibv_dm *dm = ibv_alloc_dm(context, &wanted_dm);
	CHECK(dm);
	region = ibv_reg_dm_mr(pd, dm, 0, 4096, EVERY | IBV_ACCESS_ZERO_BASED);
	FAILS_TO_CHANGE(region, IBV_REREG_MR_CHANGE_TRANSLATION, memory, 64, 0, EOPNOTSUPP);
	done(region);
	CHECK(ibv_free_dm(dm) == 0);
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	rights();
	mappings();
	pair();
	another_address();
	nothing_at_all();
	moved_from_zero();
	changed();
	refused_changes();
	part();
	return finish();
}
