/* Inline data is copied while it is posted: from memory that is nobody's region, whatever the key
 * says; but no more than was granted. */
#include "pair.h"

int main(int argc, char **argv)
{
	begin(argc, argv);
	pair();
	char text[2][8] = { "inline", "pieces" };
	struct ibv_sge sges[2] = {
		{ (uintptr_t)text[0], 8, 0xdeadbeef }, { (uintptr_t)text[1], 8, 0 },
	};
	struct ibv_send_wr wr = request(IBV_WR_SEND, 1, IBV_SEND_INLINE | IBV_SEND_SIGNALED, sges, 0);
	struct ibv_send_wr *bad;
	wr.num_sge = 2;
	receive(b, 2, 64, 64);
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	memset(text, 'x', sizeof(text));
	ends(a, 1, IBV_WC_SUCCESS);
	CHECK(ends(b, 2, IBV_WC_SUCCESS).byte_len == 16);
	CHECK(!memcmp(memory + 64, "inline\0\0pieces\0\0", 16));

	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(ibv_query_qp(a.qp, &attr, IBV_QP_CAP, &init) == 0);
	wr.num_sge = 1;
	sges[0] = (struct ibv_sge){ (uintptr_t)memory, init.cap.max_inline_data, 0 };
	wr.opcode = IBV_WR_RDMA_WRITE;
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	ends(a, 1, IBV_WC_SUCCESS);
	sges[0].length++;
	CHECK(ibv_post_send(a.qp, &wr, &bad) == EINVAL && bad == &wr);
	part();
	return finish();
}
