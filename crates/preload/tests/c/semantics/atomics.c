/* Atomic operations of several queue pairs and of the CPU on one word lose nothing. */
#include "pair.h"

#include <pthread.h>
#include <stdatomic.h>

enum { PAIRS = 3, EACH = 2000 };

static _Atomic uint64_t *word = (_Atomic uint64_t *)memory;

static void *by_requests(void *number)
{
	struct ibv_cq *cq = make_cq(16);
	struct side c = { make_qp(cq), cq }, d = { make_qp(cq), cq };
	uint64_t result = 4096 * (1 + (uintptr_t)number), last = 0;
	join(c.qp, d.qp);
	for (int i = 0; i < EACH; i++) {
		struct ibv_sge sge = place(result, 8);
		struct ibv_send_wr wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, IBV_SEND_SIGNALED,
						&sge, 0), *bad;
		wr.wr.atomic.compare_add = 1;
		CHECK(ibv_post_send(c.qp, &wr, &bad) == 0);
		struct ibv_wc wc = ends(c, 1, IBV_WC_SUCCESS);
		CHECK(wc.opcode == IBV_WC_FETCH_ADD && wc.byte_len == 8);
		uint64_t before = *(uint64_t *)(memory + result);
		CHECK(i == 0 || before > last);
		last = before;
	}
	CHECK(ibv_destroy_qp(c.qp) == 0 && ibv_destroy_qp(d.qp) == 0 && ibv_destroy_cq(cq) == 0);
	return NULL;
}

static void *by_the_cpu(void *unused)
{
	for (int i = 0; i < EACH; i++)
		atomic_fetch_add(word, 1);
	return unused;
}

/* One who finds what it expects writes, the others do not. */
static void compare_and_swap(void)
{
	pair();
	for (int i = 0; i < 2; i++) {
		struct ibv_sge sge = place(64, 8);
		struct ibv_send_wr wr = request(IBV_WR_ATOMIC_CMP_AND_SWP, 1, IBV_SEND_SIGNALED,
						&sge, 0), *bad;
		wr.wr.atomic.compare_add = 7, wr.wr.atomic.swap = 9 + i;
		*word = i ? *word : 7;
		CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
		CHECK(ends(a, 1, IBV_WC_SUCCESS).opcode == IBV_WC_COMP_SWAP);
		CHECK(*word == 9 && *(uint64_t *)(memory + 64) == (i ? 9 : 7));
	}
	part();
}

int main(int argc, char **argv)
{
	pthread_t threads[PAIRS + 1];
	begin(argc, argv);
	for (uintptr_t i = 0; i <= PAIRS; i++)
		CHECK(!pthread_create(&threads[i], NULL, i < PAIRS ? by_requests : by_the_cpu,
				      (void *)i));
	for (int i = 0; i <= PAIRS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	CHECK(*word == (PAIRS + 1) * EACH);
	compare_and_swap();
	return finish();
}
