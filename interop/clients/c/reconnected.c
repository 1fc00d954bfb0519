/* A queue pair that its program resets and connects again to the same peer: in each turn Writes go
 * from the client to the server, which compares every byte.
 *
 * reconnected [HOST]: the server, or the client of the server at HOST */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno); \
			exit(1); \
		} \
	} while (0)

enum { PORT = 18515, BLOCK = 64 << 10, WINDOW = 32 };
/* Blocks of each turn: the last one has nearly all. */
static const int turns[] = { 8, 320 };

struct end {
	union ibv_gid gid;
	uint64_t address;
	uint32_t rkey, qpn;
};

static uint8_t memory[320 * BLOCK];
static struct end own, far;
static int out_of_band;

static void all(ssize_t (*move)(int, void *, size_t), void *bytes, size_t size)
{
	for (size_t done = 0; done < size;) {
		ssize_t moved = move(out_of_band, (char *)bytes + done, size - done);
		CHECK(moved > 0);
		done += moved;
	}
}

static ssize_t give(int at, void *bytes, size_t size)
{
	return write(at, bytes, size);
}

/* Returns once the peer has called it as often. */
static void meet(void)
{
	char mark = 0;
	all(give, &mark, 1);
	all(read, &mark, 1);
}

static int met(const char *host)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	int made = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
	CHECK(made >= 0);
	if (host) {
		CHECK(inet_pton(AF_INET, host, &at.sin_addr) == 1);
		while (connect(made, (struct sockaddr *)&at, sizeof(at))) {
			CHECK(errno == ECONNREFUSED);
			close(made);
			CHECK((made = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
			usleep(10000);
		}
		return made;
	}
	CHECK(setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) == 0);
	CHECK(bind(made, (struct sockaddr *)&at, sizeof(at)) == 0 && listen(made, 1) == 0);
	return accept(made, NULL, NULL);
}

static void connect_qp(struct ibv_qp *qp, int gid_index)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1,
				    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				 IBV_QP_ACCESS_FLAGS));
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = far.qpn,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = far.gid, .sgid_index = gid_index, .hop_limit = 64 } },
	};
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
				 IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				 IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 16, .retry_cnt = 7,
				     .rnr_retry = 7, .max_rd_atomic = 1 };
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				 IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void write_all(struct ibv_qp *qp, uint32_t lkey, int blocks)
{
	int posted = 0;
	for (int done = 0; done < blocks;) {
		struct ibv_wc wc;
		for (; posted < blocks && posted < done + WINDOW; posted++) {
			uint64_t at = (uint64_t)posted * BLOCK;
			struct ibv_sge sge = { (uintptr_t)memory + at, BLOCK, lkey };
			struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1,
						  .opcode = IBV_WR_RDMA_WRITE,
						  .send_flags = IBV_SEND_SIGNALED }, *bad;
			wr.wr.rdma.remote_addr = far.address + at;
			wr.wr.rdma.rkey = far.rkey;
			CHECK(!ibv_post_send(qp, &wr, &bad));
		}
		int count = ibv_poll_cq(qp->send_cq, 1, &wc);
		CHECK(count >= 0);
		if (count && wc.status) {
			fprintf(stderr, "%s\n", ibv_wc_status_str(wc.status));
			exit(1);
		}
		done += count;
	}
}

static struct ibv_context *opened(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list);
	for (int i = 0; list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			return ibv_open_device(list[i]);
	return NULL;
}

/* The GID of the device that is the address by which the peer was met. */
static int gid_of(struct ibv_context *context)
{
	struct sockaddr_in at;
	socklen_t size = sizeof(at);
	CHECK(getsockname(out_of_band, (struct sockaddr *)&at, &size) == 0);
	for (int index = 0; !ibv_query_gid(context, 1, index, &own.gid); index++)
		if (!memcmp(own.gid.raw + 12, &at.sin_addr, 4) && own.gid.raw[10] == 0xff)
			return index;
	CHECK(!"a GID of this address");
	return 0;
}

int main(int count, char **words)
{
	int is_client = count > 1;
	CHECK((out_of_band = met(is_client ? words[1] : NULL)) >= 0);
	struct ibv_context *context = opened("weft0");
	CHECK(context);
	int gid_index = gid_of(context);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 2 * WINDOW, NULL, NULL, 0);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof(memory),
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = WINDOW, .max_recv_wr = 1, .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(pd && cq && mr && qp);
	own.address = (uintptr_t)memory;
	own.rkey = mr->rkey;
	own.qpn = qp->qp_num;
	all(give, &own, sizeof(own));
	all(read, &far, sizeof(far));

	for (unsigned turn = 0; turn < sizeof(turns) / sizeof(*turns); turn++) {
		size_t size = (size_t)turns[turn] * BLOCK;
		for (size_t at = 0; at < size; at++)
			memory[at] = is_client ? at * 7 + at / BLOCK + turn : 0;
		connect_qp(qp, gid_index);
		meet();
		if (is_client)
			write_all(qp, mr->lkey, turns[turn]);
		meet();
		for (size_t at = 0; at < size; at++)
			CHECK(memory[at] == (uint8_t)(at * 7 + at / BLOCK + turn));
		CHECK(!ibv_modify_qp(qp, &(struct ibv_qp_attr){ .qp_state = IBV_QPS_RESET },
				     IBV_QP_STATE));
		meet();
	}
	printf("%s: every byte came\n", is_client ? "client" : "server");
	return 0;
}
