/* Two processes that rdma-cm connects. The child, which connects, runs `client`, and the parent
 * `server`; the test ends well if both do. */
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { DEPTH = 32 };

static struct rdma_addrinfo *place_of(const char *port, int passive)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *found;
	hints.ai_flags = passive ? RAI_PASSIVE : 0;
	CHECK(rdma_getaddrinfo("127.0.0.1", (char *)port, &hints, &found) == 0);
	return found;
}

/* Whether the completion queue of sends has no channel. */
static int silent_sends;

static struct rdma_cm_id *endpoint(const char *port, int passive)
{
	struct ibv_qp_init_attr wanted = {
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC, .sq_sig_all = 1,
	};
	struct rdma_addrinfo *info = place_of(port, passive);
	struct rdma_cm_id *id;
	int apart = silent_sends && !passive;
	CHECK(rdma_create_ep(&id, info, NULL, apart ? NULL : &wanted) == 0);
	rdma_freeaddrinfo(info);
	if (apart) {
		wanted.send_cq = ibv_create_cq(id->verbs, DEPTH, NULL, NULL, 0);
		CHECK(wanted.send_cq && rdma_create_qp(id, NULL, &wanted) == 0);
		id->send_cq = wanted.send_cq;
	}
	return id;
}

static inline struct ibv_wc next_of(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int count;
	while (!(count = ibv_poll_cq(cq, 1, &wc)))
		;
	CHECK(count == 1);
	return wc;
}

static int meet(void (*server)(struct rdma_cm_id *), void (*client)(struct rdma_cm_id *))
{
	int told[2], status;
	char port[8] = "";
	CHECK(pipe(told) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK(read(told[0], port, sizeof(port)) == sizeof(port));
		struct rdma_cm_id *id = endpoint(port, 0);
		CHECK(rdma_connect(id, NULL) == 0);
		client(id);
		rdma_destroy_ep(id);
		exit(0);
	}
	struct rdma_cm_id *listener = endpoint("0", 1), *id;
	CHECK(rdma_listen(listener, 1) == 0);
	snprintf(port, sizeof(port), "%d", ntohs(rdma_get_src_port(listener)));
	CHECK(write(told[1], port, sizeof(port)) == sizeof(port));
	CHECK(rdma_get_request(listener, &id) == 0);
	server(id);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	rdma_destroy_ep(id);
	rdma_destroy_ep(listener);
	return 0;
}
