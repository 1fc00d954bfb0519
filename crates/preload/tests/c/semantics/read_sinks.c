/* Where the answer to a Read goes: one place or several, which may be written by this side, or by
 * peers too, as an RNIC wants it; and no other. */
#include "pair.h"

enum { SOURCE = 1 << 20, SINK = 2 << 20, ROUNDS = 200, READS = 8, PLACES = 32 };

static struct ibv_device_attr device;

static enum ibv_wc_status read_into(unsigned access)
{
	struct ibv_mr *sink = ibv_reg_mr(pd, memory + 4096, 64, access);
	struct ibv_sge sge = { (uintptr_t)memory + 4096, 8, sink->lkey };
	struct ibv_send_wr wr = request(IBV_WR_RDMA_READ, 1, IBV_SEND_SIGNALED, &sge, 0), *bad;
	pair();
	memcpy(memory, "source", 7);
	memset(memory + 4096, 0, 8);
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	enum ibv_wc_status status = next(a.cq).status;
	CHECK(!strcmp(memory + 4096, status ? "" : "source"));
	part();
	CHECK(ibv_dereg_mr(sink) == 0);
	return status;
}

static void as_many_as_advertised(void)
{
	struct ibv_device_attr_ex more;
	CHECK(ibv_query_device(context, &device) == 0);
	CHECK(ibv_query_device_ex(context, NULL, &more) == 0);
	CHECK(device.max_sge_rd == PLACES && more.orig_attr.max_sge_rd == PLACES);
	struct ibv_sge sges[PLACES + 1];
	for (int i = 0; i <= PLACES; i++)
		sges[i] = place(SINK + 3 * i, i < PLACES ? 2 : 0);
	wanted.cap.max_send_sge = PLACES;
	pair();
	for (int i = 0; i < 2 * PLACES; i++)
		memory[SOURCE + i] = 1 + i;
	memset(memory + SINK, 0, 4 * PLACES);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_READ, 1, IBV_SEND_SIGNALED, sges, SOURCE), *bad;
	wr.num_sge = PLACES;
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	CHECK(ends(a, 1, IBV_WC_SUCCESS).byte_len == 2 * PLACES);
	for (int i = 0; i < 3 * PLACES; i++)
		CHECK(memory[SINK + i] == (i % 3 == 2 ? 0 : 1 + i / 3 * 2 + i % 3));
	wr.num_sge = PLACES + 1;
	CHECK(ibv_post_send(a.qp, &wr, &bad) == EINVAL && bad == &wr);
	part();
}

/* Reads of any length into any places, together: memory ends as if one came after the other. */
static void many_together(void)
{
	static char expected[1 << 20];
	char *sink = memory + SINK;
	struct ibv_sge sges[READS][PLACES];
	for (int i = 0; i < 1 << 20; i++)
		memory[SOURCE + i] = rand();
	memset(sink, 0, sizeof(expected));
	pair();
	for (int round = 0; round < ROUNDS; round++) {
		for (int read = 0; read < READS; read++) {
			uint32_t from = rand() % 65536, places = rand() % PLACES;
			for (uint32_t i = 0; i < places; i++) {
				uint32_t to = rand() % 65536, length = rand() % (1 << rand() % 15);
				sges[read][i] = place(SINK + to, length);
				memcpy(expected + to, memory + SOURCE + from, length);
				from += length;
			}
			for (uint32_t i = 0; i < places; i++)
				from -= sges[read][i].length;
			struct ibv_send_wr wr = request(IBV_WR_RDMA_READ, read, IBV_SEND_SIGNALED,
							sges[read], SOURCE + from), *bad;
			wr.num_sge = places;
			CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
		}
		for (int read = 0; read < READS; read++)
			ends(a, read, IBV_WC_SUCCESS);
		CHECK(!memcmp(sink, expected, sizeof(expected)));
	}
	part();
}

/* Each place has to be within its own region, and the source within the peer's. */
static void within_bounds(uint32_t shift, uint32_t beyond, enum ibv_wc_status status)
{
	struct ibv_mr *small = ibv_reg_mr(pd, memory + 8192, 64, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge sges[3] = { place(4096, 32), { (uintptr_t)memory + 8192 + shift, 32,
						      small->lkey }, place(4160, 32) };
	struct ibv_send_wr wr = request(IBV_WR_RDMA_READ, 1, 0, sges, ROOM - 96 + beyond), *bad;
	wr.num_sge = 3;
	wr.send_flags = IBV_SEND_SIGNALED;
	memset(memory + ROOM - 96, 7, 96);
	memset(memory + 4096, 0, 4096 + 96);
	pair();
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	ends(a, 1, status);
	for (int i = 4096; i < 8192 + 96; i++) {
		int place = i < 4128 || (i >= 4160 && i < 4192) ||
			(i >= 8192 + (int)shift && i < 8192 + (int)shift + 32);
		CHECK(memory[i] == (place && status == IBV_WC_SUCCESS ? 7 : 0));
	}
	part();
	CHECK(ibv_dereg_mr(small) == 0);
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	CHECK(read_into(IBV_ACCESS_LOCAL_WRITE) == IBV_WC_SUCCESS);
	CHECK(read_into(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE) == IBV_WC_SUCCESS);
	CHECK(read_into(IBV_ACCESS_REMOTE_READ) == IBV_WC_LOC_PROT_ERR);
	srand(1);
	as_many_as_advertised();
	many_together();
	within_bounds(32, 0, IBV_WC_SUCCESS);
	within_bounds(33, 0, IBV_WC_LOC_PROT_ERR);
	within_bounds(0, 1, IBV_WC_REM_ACCESS_ERR);
	return finish();
}
