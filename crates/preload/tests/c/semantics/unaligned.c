/* Work requests, their entries and completions may be members of packed structures, at addresses
 * that no alignment holds for: libiscsi posts receives so. */
#include "pair.h"

struct descriptor {
	char odd;
	struct ibv_sge sges[5];
	struct ibv_send_wr send;
	struct ibv_recv_wr recv;
	void *bad;
	struct ibv_wc wc[2];
} __attribute__((packed));

static struct descriptor d;

/* Pointers that the compiler takes for aligned. */
static void *at(void *member)
{
	CHECK((uintptr_t)member % 2);
	return member;
}

static struct ibv_wc polled(struct side side)
{
	while (!ibv_poll_cq(side.cq, 2, at(d.wc)))
		;
	struct ibv_wc wc;
	memcpy(&wc, d.wc, sizeof(wc));
	CHECK(wc.status == IBV_WC_SUCCESS);
	return wc;
}

static void entries(uint64_t from)
{
	for (int i = 0; i < 5; i++)
		d.sges[i] = place(from + 8 * i, 8);
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	wanted.cap.max_send_sge = wanted.cap.max_recv_sge = 5;
	pair();
	memset(memory, 'x', 40);
	for (int count = 1; count <= 5; count += 4) {
		entries(64);
		d.recv = (struct ibv_recv_wr){ .wr_id = 2, .num_sge = count };
		d.recv.sg_list = at(d.sges);
		CHECK(ibv_post_recv(b.qp, at(&d.recv), at(&d.bad)) == 0);
		entries(0);
		d.send = request(IBV_WR_SEND, 1, IBV_SEND_SIGNALED, at(d.sges), 0);
		d.send.num_sge = count;
		CHECK(ibv_post_send(a.qp, at(&d.send), at(&d.bad)) == 0);
		CHECK(polled(a).wr_id == 1);
		struct ibv_wc wc = polled(b);
		CHECK(wc.wr_id == 2 && wc.byte_len == 8u * count);
		CHECK(!memcmp(memory, memory + 64, 8 * count) && memory[64 + 8 * count] == 0);
	}

	d.send.num_sge = 1000;
	CHECK(ibv_post_send(a.qp, at(&d.send), at(&d.bad)) == EINVAL && d.bad == &d.send);
	d.recv.num_sge = 1000;
	CHECK(ibv_post_recv(b.qp, at(&d.recv), at(&d.bad)) == EINVAL && d.bad == &d.recv);
	part();
	return finish();
}
