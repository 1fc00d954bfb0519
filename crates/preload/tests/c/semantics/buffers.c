/* A buffer that the device allocates is whole pages of zeroes. Regions are made within it, of its
 * own domain, and are like others. Memory that is not the process's is EOPNOTSUPP. */
#include "../newest.h"

#include "pair.h"

#include <sys/mman.h>

#define BUF "1.17"

enum { PAGE = 4096 };

static struct ibv_mr *(*register_ex)(struct ibv_pd *, void *);

static void refuses(uint64_t mask, int code)
{
	struct mr_init_attr_buf attr = { .attr = {
		.length = PAGE, .access = EVERY, .comp_mask = mask, .addr = memory, .fd = 0,
	} };
	errno = 0;
	CHECK(!register_ex(pd, &attr) && errno == code);
}

/* Sends from one region and writes to the other, whose peers name its first octet `base`. */
static void carries(struct ibv_mr *from, struct ibv_mr *to, uint64_t base)
{
	struct ibv_sge sge = { (uintptr_t)from->addr, 64, from->lkey };
	struct ibv_sge room = { base, PAGE, to->lkey };
	struct ibv_recv_wr receive = { .wr_id = 1, .sg_list = &room, .num_sge = 1 }, *bad_receive;
	struct ibv_send_wr wr = request(IBV_WR_SEND, 2, IBV_SEND_SIGNALED, &sge, 0), *bad;
	memset(from->addr, 's', 64);
	CHECK(ibv_post_recv(b.qp, &receive, &bad_receive) == 0);
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	ends(a, 2, IBV_WC_SUCCESS);
	CHECK(ends(b, 1, IBV_WC_SUCCESS).byte_len == 64);
	CHECK(!memcmp(from->addr, to->addr, 64));

	wr.opcode = IBV_WR_RDMA_WRITE;
	wr.wr.rdma.remote_addr = base + 64;
	wr.wr.rdma.rkey = to->rkey;
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	ends(a, 2, IBV_WC_SUCCESS);
	while (memcmp(from->addr, (char *)to->addr + 64, 64))
		CHECK(ibv_poll_cq(b.cq, 1, &(struct ibv_wc){}) == 0);
}

/* A program of an older version has a shorter structure: nothing behind it is looked at. */
static struct ibv_mr *of_an_older_program(void *addr, uint64_t iova)
{
	char *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(pages != MAP_FAILED && mprotect(pages + PAGE, PAGE, PROT_NONE) == 0);
	struct mr_init_attr *attr = (void *)(pages + PAGE - sizeof(*attr));
	*attr = (struct mr_init_attr){
		.length = PAGE, .access = EVERY, .comp_mask = REG_MR_MASK_ADDR | REG_MR_MASK_IOVA,
		.iova = iova, .addr = addr,
	};
	struct ibv_mr *made = register_ex(pd, attr);
	CHECK(made && made->addr == addr && made->length == PAGE);
	CHECK(munmap(pages, 2 * PAGE) == 0);
	return made;
}

static void of_a_parent(void)
{
	VERB(void *, alloc_buf, BUF, struct ibv_pd *, size_t, struct ibv_buf **);
	VERB(void, free_buf, BUF, struct ibv_buf *);
	VERB(struct ibv_mr *, reg_buf_mr, BUF, struct ibv_pd *, struct ibv_buf *, void *, size_t, int);
	struct ibv_parent_domain_init_attr attr = {
		.pd = pd, .comp_mask = PARENT_DOMAIN_ALLOW_CC_UNPROTECTED_ALLOC,
	};
	struct ibv_pd *parent = ibv_alloc_parent_domain(context, &attr);
	struct ibv_buf *buf = NULL;
	CHECK(parent);
	void *addr = alloc_buf(parent, PAGE, &buf);
	CHECK(addr && !reg_buf_mr(pd, buf, addr, PAGE, EVERY) && errno == EINVAL);
	struct ibv_mr *made = reg_buf_mr(parent, buf, addr, PAGE, EVERY);
	CHECK(made && made->pd == parent && ibv_dereg_mr(made) == 0);
	free_buf(buf);
	CHECK(ibv_dealloc_pd(parent) == 0);
}

int main(int argc, char **argv)
{
	VERB(void *, alloc_buf, BUF, struct ibv_pd *, size_t, struct ibv_buf **);
	VERB(void, free_buf, BUF, struct ibv_buf *);
	VERB(struct ibv_mr *, reg_buf_mr, BUF, struct ibv_pd *, struct ibv_buf *, void *, size_t, int);
	VERB(struct ibv_buf *, alloc_user_buf, BUF, struct ibv_pd *, void *, size_t, int);
	VERB(void, free_user_buf, BUF, struct ibv_buf *);
	VERB(int, export_buf_dmabuf_fd, BUF, struct ibv_buf *);
	register_ex = newest("libibverbs.so.1", "ibv_reg_mr_ex", "IBVERBS_1.15");
	begin(argc, argv);
	pair();

	struct ibv_buf *buf = NULL;
	char *addr = alloc_buf(pd, 2 * PAGE, &buf), zeroes[2 * PAGE] = { 0 };
	CHECK(addr && buf && (uintptr_t)addr % PAGE == 0 && !memcmp(addr, zeroes, sizeof(zeroes)));
	struct mr_init_attr_buf attr = { .attr = {
		.length = PAGE, .access = EVERY, .comp_mask = REG_MR_MASK_BUF | REG_MR_MASK_ADDR,
		.addr = addr + PAGE,
	}, .buf = buf };
	struct ibv_mr *first = reg_buf_mr(pd, buf, addr, PAGE, EVERY), *second = register_ex(pd, &attr);
	CHECK(first && second && first->lkey != second->lkey && second->addr == addr + PAGE);
	carries(first, second, (uintptr_t)second->addr);

	CHECK(!reg_buf_mr(pd, buf, addr, 2 * PAGE + 1, EVERY) && errno == EINVAL);
	CHECK(!reg_buf_mr(pd, buf, addr - 1, 1, EVERY) && errno == EINVAL);
	attr.attr.length = PAGE + 1;
	CHECK(!register_ex(pd, &attr) && errno == EINVAL);
	errno = 0;
	CHECK(export_buf_dmabuf_fd(buf) == -1 && errno == EOPNOTSUPP);
	CHECK(!alloc_buf(pd, SIZE_MAX, &buf) && errno == ENOMEM);

	struct ibv_mr *elsewhere = of_an_older_program(memory, 0x1000);
	carries(first, elsewhere, 0x1000);
	CHECK(ibv_dereg_mr(elsewhere) == 0);
	refuses(0, EINVAL);
	refuses(REG_MR_MASK_IOVA, EINVAL);
	refuses(REG_MR_MASK_FD | REG_MR_MASK_FD_OFFSET, EOPNOTSUPP);
	refuses(REG_MR_MASK_ADDR | REG_MR_MASK_DMAH, EOPNOTSUPP);
	refuses(REG_MR_MASK_ADDR | 1 << 20, EOPNOTSUPP);
	refuses(REG_MR_MASK_BUF | REG_MR_MASK_ADDR | REG_MR_MASK_FD, EINVAL);
	refuses(REG_MR_MASK_BUF | REG_MR_MASK_ADDR, EINVAL);

	struct ibv_buf *own = alloc_user_buf(pd, memory, PAGE, -1);
	CHECK(own && !alloc_user_buf(pd, memory, PAGE, 0) && errno == EOPNOTSUPP);
	elsewhere = reg_buf_mr(pd, own, memory, PAGE, EVERY);
	CHECK(elsewhere);
	carries(first, elsewhere, (uintptr_t)memory);
	CHECK(ibv_dereg_mr(elsewhere) == 0);
	free_user_buf(own);
	of_a_parent();

	CHECK(ibv_dereg_mr(first) == 0 && ibv_dereg_mr(second) == 0);
	free_buf(buf);
	part();
	return finish();
}
