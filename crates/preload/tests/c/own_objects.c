/* What a child of a fork makes on a device that its parent has used is its own: it is in use, and
 * ends when it is destroyed. */
#include <arpa/inet.h>
#include <dirent.h>
#include <rdma/rdma_cma.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { CHANNELS = 20 };

static int open_files(void)
{
	int count = 0;
	DIR *dir = opendir("/proc/self/fd");
	CHECK(dir);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

static void use(void)
{
	static char memory[4096];
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(1) };
	struct rdma_cm_id *id;
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 2000) == 0);
	struct ibv_context *context = id->verbs;
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof(memory), 0);
	CHECK(mr && ibv_dealloc_pd(pd) == EBUSY);
	struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .cap = { 1, 1, 1, 1, 0 }, .qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(qp && ibv_destroy_cq(cq) == EBUSY);
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);
	CHECK(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0);
	int before = open_files();
	for (int i = 0; i < CHANNELS; i++)
		CHECK(ibv_destroy_comp_channel(ibv_create_comp_channel(context)) == 0);
	CHECK(open_files() == before && rdma_destroy_id(id) == 0);
}

int main(void)
{
	int status;
	use();
	pid_t child = fork();
	if (child == 0) {
		use();
		exit(0);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	use();
	return 0;
}
