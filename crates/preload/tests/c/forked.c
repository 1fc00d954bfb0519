/* A process forks again and again while its threads make and destroy objects; each child uses the
 * device anew, and waits for no thread that it does not have. */
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device.h"

enum { THREADS = 3, CHILDREN = 300 };

static atomic_int over;

static void use(struct ibv_context *context)
{
	char memory[64];
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct ibv_mr *region = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	CHECK(pd && cq && channel && region);
	struct ibv_qp_init_attr attr = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);
	CHECK(qp && ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);
	CHECK(ibv_dereg_mr(region) == 0 && ibv_dealloc_pd(pd) == 0);
	rdma_destroy_event_channel(channel);
}

static void *uses(void *context)
{
	while (!over)
		use(context);
	return NULL;
}

static struct ibv_context *opened(void)
{
	struct ibv_context *context = ibv_open_device(device_named("weft0"));
	CHECK(context);
	return context;
}

int main(void)
{
	pthread_t threads[THREADS];
	struct ibv_context *context = opened();
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(threads + i, NULL, uses, context) == 0);
	for (int i = 0; i < CHILDREN; i++) {
		int status;
		pid_t child = fork();
		if (child == 0) {
			context = opened();
			use(context);
			CHECK(ibv_close_device(context) == 0);
			_exit(0);
		}
		CHECK(waitpid(child, &status, 0) == child && status == 0);
	}
	over = 1;
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	CHECK(ibv_close_device(context) == 0);
	return 0;
}
